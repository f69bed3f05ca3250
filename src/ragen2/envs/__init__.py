"""Text environments: the interface, the registry, splits by content and the contract check."""

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.check import CheckReport, Finding, check_env
from ragen2.envs.registry import family_names, list_envs, list_families, make, register, register_family
from ragen2.envs.spec import EnvFamily, EnvSpec
from ragen2.envs.splits import SPLITS, draw_level, level_rng, noise_rng, split_of, validation_seeds

__all__ = [
    "SPLITS",
    "CheckReport",
    "Demonstration",
    "EnvFamily",
    "EnvSpec",
    "Finding",
    "Observation",
    "StepResult",
    "TextEnv",
    "check_env",
    "draw_level",
    "family_names",
    "level_rng",
    "list_envs",
    "list_families",
    "make",
    "noise_rng",
    "register",
    "register_family",
    "split_of",
    "validation_seeds",
]
