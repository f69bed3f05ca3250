"""Where built models are kept; see `ragen2.cache`."""

from __future__ import annotations

from ragen2.cache import build_once, cache_folder

__all__ = ["build_once", "cache_folder"]
