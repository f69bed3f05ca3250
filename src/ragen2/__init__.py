"""Train language-model agents with multi-turn RL, notice reasoning collapse early and counter it (RAGEN-2, arXiv 2604.06268).

Importing this package loads numpy only; everything heavier loads on use.
"""

from importlib.metadata import PackageNotFoundError, version

from ragen2.envs.registry import list_envs, make, register

try:
    __version__ = version("ragen2")
except PackageNotFoundError:
    __version__ = "0+source"

__all__ = ["__version__", "list_envs", "make", "register"]
