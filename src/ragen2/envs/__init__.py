"""Text environments: the interface, the registry, splits by content and the contract check."""

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.check import CheckReport, Finding, check_env
from ragen2.envs.registry import list_envs, make, register
from ragen2.envs.spec import EnvSpec
from ragen2.envs.splits import SPLITS, draw_level, level_rng, noise_rng, split_of, validation_seeds

__all__ = [
    "SPLITS",
    "CheckReport",
    "Demonstration",
    "EnvSpec",
    "Finding",
    "Observation",
    "StepResult",
    "TextEnv",
    "check_env",
    "draw_level",
    "level_rng",
    "list_envs",
    "make",
    "noise_rng",
    "register",
    "split_of",
    "validation_seeds",
]
