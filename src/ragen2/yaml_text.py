"""YAML that people write, as plain data of bounded size."""

from __future__ import annotations

from typing import Any

import yaml

from ragen2.errors import ConfigError

MOST_VALUES = 20_000
DEEPEST = 20


def parse_yaml(text: str, what: str) -> Any:
    """Numbers, texts, lists and mappings, aliases written out.

    Raises ConfigError, its message beginning with `what`, for text that is not YAML, holds a tag or a number that plain data does
    not have, or is nested or repeated (by aliases) beyond any use.
    """
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: a number of thousands of digits, a date that does not exist.
        raise ConfigError(f"{what} is not YAML ({error})") from error
    except RecursionError as error:
        raise ConfigError(f"{what} is nested too deeply; {DEEPEST} levels are allowed") from error
    return _Copier(what).copy(data, DEEPEST)


class _Copier:
    """Copies plain data value by value, so that aliases to one value count each time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._left = MOST_VALUES

    def copy(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ConfigError(f"{self._what} holds more than {MOST_VALUES} values once its aliases are written out")
        if depth < 0:
            raise ConfigError(f"{self._what} is nested too deeply; {DEEPEST} levels are allowed")
        if isinstance(value, dict):
            return {key: self.copy(item, depth - 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.copy(item, depth - 1) for item in value]
        return value
