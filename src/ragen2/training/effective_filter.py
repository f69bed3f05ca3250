"""The filter that a run really applies."""

from __future__ import annotations

from dataclasses import replace

from ragen2.algorithms import ResolvedAlgorithm
from ragen2.filtering import FilterConfig, filter_preset


def effective_filter(config: FilterConfig, algorithm: ResolvedAlgorithm) -> FilterConfig:
    """`config`; for an algorithm with dynamic sampling whose filter was left at the default, the filter that does that.

    Any other filter is the user's choice and stays as it is.
    """
    untouched = config == FilterConfig(max_refills=config.max_refills)
    if algorithm.dynamic_sampling and untouched:
        return replace(filter_preset("dynamic-sampling"), max_refills=config.max_refills)
    return config
