"""The environments that come with ragen2: where each is found and what it needs."""

from __future__ import annotations

from ragen2.envs.spec import EnvSpec

CATALOGUE = (
    EnvSpec("frozen-lake", "ragen2.envs.frozen_lake:FrozenLake", "walk over slippery ice to the goal, around the holes"),
    EnvSpec("bandit", "ragen2.envs.bandit:Bandit", "choose between a steady and a risky arm by their names, one step"),
    EnvSpec("sokoban", "ragen2.envs.sokoban:Sokoban", "push every box onto a target"),
    EnvSpec("countdown", "ragen2.envs.countdown:Countdown", "reach a target number with + - * / and every number once"),
)
