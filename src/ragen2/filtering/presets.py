"""Filters with a name: the paper's definition, what its published scripts ran, and dynamic sampling."""

from __future__ import annotations

from ragen2.errors import UnknownName
from ragen2.filtering.config import FilterConfig

FILTER_PRESETS: dict[str, FilterConfig] = {
    "paper": FilterConfig(),
    "paper-runs": FilterConfig(
        mode="softmax_top_p",
        score="std",
        include_zero=True,
        include_penalty=True,
        within_environment=False,
        updates="shrink",
    ),
    "dynamic-sampling": FilterConfig(top_p=1.0, on_empty="refill", refill_share=1.0),
    "off": FilterConfig(mode="none"),
}
"""`paper-runs` depends on the scale of the rewards: softmax over deviations under 1 keeps nearly everything."""


def filter_preset(name: str) -> FilterConfig:
    """The filter of that name. Raises UnknownName, which names the nearest."""
    if name not in FILTER_PRESETS:
        raise UnknownName("filter preset", name, FILTER_PRESETS)
    return FILTER_PRESETS[name]
