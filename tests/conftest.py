"""Which tests run: slow ones on request or in turns, GPU ones where there is a GPU."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", choices=["none", "part", "all"], default="none", help="which tests marked slow run")
    parser.addoption("--slow-part", default="0/3", metavar="N/PARTS", help="with --slow=part: every PARTS-th slow test, from N")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = any("::" in argument for argument in config.args)
    slow = sorted(item.nodeid for item in items if item.get_closest_marker("slow"))
    chosen = set(slow) if named else _chosen(slow, str(config.getoption("--slow")), str(config.getoption("--slow-part")))
    for item in items:
        if item.get_closest_marker("slow") and item.nodeid not in chosen:
            item.add_marker(pytest.mark.skip(reason="slow: not this time (--slow=all runs it)"))
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _chosen(slow: list[str], mode: str, part: str) -> set[str]:
    """Consecutive runs with N, N + 1, … cover every slow test once in PARTS runs."""
    if mode != "part":
        return set(slow) if mode == "all" else set()
    number, _, parts = part.partition("/")
    return set(slow[int(number) % int(parts) :: int(parts)])


def _has_gpu() -> bool:
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()
