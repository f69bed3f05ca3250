"""The run configuration: recipe < preset < file < overrides, checked, with the nearest key named for a wrong one."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ragen2.algorithms import AlgorithmConfig, get_algorithm, resolve
from ragen2.diagnostics.early_stop import EarlyStopConfig
from ragen2.diagnostics.monitor import MonitorConfig
from ragen2.envs import make
from ragen2.errors import ConfigError, UnknownName
from ragen2.filtering import FilterConfig
from ragen2.rollout.config import RolloutConfig
from ragen2.training.effective_filter import effective_filter
from ragen2.training.levels import groups_per_environment
from ragen2.training.petri import petri_warmup
from ragen2.training.settings import (
    CheckpointConfig,
    EnvironmentConfig,
    LoggingConfig,
    ModelConfig,
    OptimizerConfig,
    ValidationConfig,
)
from ragen2.training.warmup import WarmupConfig
from ragen2.yaml_text import parse_yaml

RECIPES = Path(__file__).parent / "recipes"
PRESETS = Path(__file__).parent / "presets"

SHORTHAND = {"model": "name", "algorithm": "name", "filter": "mode", "env": "id"}
"""Sections that accept a plain word: `algorithm=grpo` is `algorithm.name=grpo`."""

REPLACED = ("model", "env")
"""Of these a plain word replaces the whole section: its other settings belong to the recipe's own model or environment."""


@dataclass(frozen=True)
class RunConfig:
    """Everything a run is made of. Written to config.yaml of the run directory, from which the run can be repeated."""

    environments: tuple[EnvironmentConfig, ...]
    """`env` in a recipe is short for a list of one."""
    recipe: str = "custom"
    preset: str | None = None
    seed: int = 0
    """Seeds levels, chance, sampling and batch order of this run."""
    iterations: int = 50
    out: str = "runs"
    """Folder that the run directory is made in."""
    model: ModelConfig = field(default_factory=ModelConfig)
    warmup: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `WarmupConfig` that differ from its defaults (those for petri, or those for pretrained models)."""
    warmup_seed: int = 0
    """Seed of the warm-up, apart from the run's: runs with other seeds then start from the same model."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    filter: FilterConfig = field(default_factory=FilterConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)

    def __post_init__(self) -> None:
        if not self.environments:
            raise ConfigError("no environment: give env.id=NAME (see `ragen2 envs`)")
        names = [item.id for item in self.environments]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(
                f"environment {twice[0]!r} is named twice; metrics and the filter go by the name. Give variants their own names "
                "with ragen2.register(id, entry_point, **options)"
            )
        if self.iterations < 1:
            raise ConfigError(f"iterations is {self.iterations}; it must be at least 1")
        for name in ("seed", "warmup_seed"):
            if not 0 <= getattr(self, name) < 2**63:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 0 and below 2**63")


def list_recipes() -> list[str]:
    """Names of the built-in recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_config(recipe: str, overrides: Iterable[str] = ()) -> RunConfig:
    """The configuration of a built-in recipe or a YAML file, with `key.path=value` overrides.

    Raises ConfigError (UnknownName for names and keys), always naming the key, the value received and what is allowed.
    """
    raw = _read_recipe(recipe)
    changes = [_parse_override(text) for text in overrides]
    asked = next((value for path, value in reversed(changes) if path == ["preset"]), None)
    if asked is not None:
        raw = {**_merge(raw, _read_preset(str(asked))), "preset": asked}
    elif raw.get("preset") is not None:
        # A file that names its preset (the config.yaml of a run does) says itself where it differs from it.
        raw = _merge(_read_preset(str(raw["preset"])), raw)
    # Words for whole sections go first, so that they cannot undo keys inside them.
    for path, value in sorted(changes, key=lambda change: len(change[0])):
        _set(raw, path, value)
    config = parse_config(raw)
    check_parts(config)
    return config


def warmup_config(config: RunConfig) -> WarmupConfig:
    """The warm-up's settings. Raises UnknownName for a key it does not have."""
    known = [item.name for item in dataclasses.fields(WarmupConfig)]
    for key in config.warmup:
        if key not in known:
            raise UnknownName("key", f"warmup.{key}", [f"warmup.{name}" for name in known])
    try:
        if config.model.name == "petri":
            settings = petri_warmup(config.environments, config.warmup)
        else:
            settings = WarmupConfig.pretrained(**config.warmup)
        return TypeAdapter(WarmupConfig).validate_python(dataclasses.asdict(settings))
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error
    except TypeError as error:
        raise ConfigError(f"warmup: a value has the wrong type ({error})") from error


def check_parts(config: RunConfig) -> None:
    """Find out before anything is built whether environments, algorithm and group size go together."""
    for environment in config.environments:
        make(environment.id, split="train", **environment.options).close()
    groups_per_environment(config.environments, config.rollout.groups)
    if config.rollout.temperature == 0:
        raise ConfigError(
            "rollout.temperature is 0, but training needs sampled replies; validation.temperature=0 validates greedily"
        )
    resolve(config.algorithm)
    warmup_config(config)
    get_algorithm(config.algorithm.name).check_group_size(config.rollout.group_size)
    spread = config.filter.mode != "none" and config.filter.score in {"variance", "std"} and not config.filter.keeps_zero
    if spread and config.rollout.group_size == 1:
        raise ConfigError(
            f"rollout.group_size is 1 and the filter scores the {config.filter.score} within groups, which is then 0: nothing "
            "would be kept. Raise rollout.group_size or use filter=none."
        )


def parse_config(raw: Mapping[str, Any]) -> RunConfig:
    """A checked RunConfig from plain data."""
    data = {key: _expand(key, value) for key, value in raw.items()}
    if "env" in data:
        if "environments" in data:
            raise ConfigError("both `env` and `environments` are given; `env` is short for a list of one")
        data["environments"] = [data.pop("env")]
    if isinstance(data.get("environments"), list):
        data["environments"] = [_split_options(_expand("env", item)) for item in data["environments"]]
    _check_keys(data, RunConfig, "")
    try:
        return TypeAdapter(RunConfig).validate_python(data)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def dump_config(config: RunConfig) -> str:
    """As YAML that `load_config` reads back to the same run; the algorithm's own values are written out."""
    data = TypeAdapter(RunConfig).dump_python(config, mode="json")
    algorithm = resolve(config.algorithm)
    data["algorithm"] = dataclasses.asdict(algorithm)
    data["filter"] = dataclasses.asdict(effective_filter(config.filter, algorithm))
    for environment in data["environments"]:
        environment.update(environment.pop("options"))
    if len(data["environments"]) == 1:
        data = {"env": data.pop("environments")[0], **data}
    return yaml.safe_dump(data, sort_keys=False)


def _read_recipe(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or path.is_file():
        return _read_yaml(path)
    if name not in list_recipes():
        raise UnknownName("recipe", name, list_recipes())
    return {"recipe": name, **_read_yaml(RECIPES / f"{name}.yaml")}


def _read_preset(name: str) -> dict[str, Any]:
    known = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    if name not in known:
        raise UnknownName("preset", name, known)
    return _read_yaml(PRESETS / f"{name}.yaml")


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the recipe file {path}: {error}") from error
    data = parse_yaml(text, f"the recipe file {path}")
    if not isinstance(data, dict):
        raise ConfigError(f"the recipe file {path} holds {type(data).__name__}; it must hold a mapping of settings")
    return {str(key): value for key, value in data.items()}


def _parse_override(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {text!r} is not of the form key.path=value, for example filter.top_p=0.8")
    return key.strip().split("."), _numbers(parse_yaml(value, f"override {text!r}: the value"))


def _numbers(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 as text; people mean the number."""
    if isinstance(value, str):
        try:
            return float(value) if value[:1] in "0123456789.-+" and "e" in value.lower() else value
        except ValueError:
            return value
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return value


def _merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: _expand(key, value) for key, value in base.items()}
    for key, value in top.items():
        value = _expand(key, value)
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _set(raw: dict[str, Any], path: list[str], value: Any) -> None:
    node = raw
    for key in path[:-1]:
        child = _expand(key, node.get(key))
        if child is None:
            child = {}
        if not isinstance(child, dict):
            raise ConfigError(f"override {'.'.join(path)}: {key!r} is {child!r}, which has no keys")
        node[key] = child
        node = child
    last = path[-1]
    if last in REPLACED and isinstance(value, str):
        node[last] = {SHORTHAND[last]: value}
    elif last in SHORTHAND and isinstance(node.get(last), dict) and not isinstance(value, dict) and value is not None:
        node[last] = {**node[last], SHORTHAND[last]: value}
    else:
        node[last] = value


def _expand(key: str, value: Any) -> Any:
    if key in SHORTHAND and isinstance(value, str):
        return {SHORTHAND[key]: value}
    return dict(value) if isinstance(value, Mapping) else _numbers(value)


def _split_options(environment: Any) -> Any:
    if not isinstance(environment, Mapping):
        return environment
    own = {item.name for item in dataclasses.fields(EnvironmentConfig)}
    given = environment.get("options", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"env.options is {given!r}; it must be a mapping of the environment's options, or left out")
    options = {**given, **{key: value for key, value in environment.items() if key not in own}}
    if "split" in options:
        raise ConfigError("env.split is no setting: runs train on the train levels and validate on the validation levels")
    return {**{key: value for key, value in environment.items() if key in own}, "options": options}


def _check_keys(data: Any, kind: Any, where: str) -> None:
    """Refuse unknown keys by name before pydantic does, so that the nearest right one can be named."""
    found = _dataclass_in(kind)
    if found is None or not isinstance(data, Mapping):
        return
    hints = typing.get_type_hints(found)
    names = [item.name for item in dataclasses.fields(found)]
    for key, value in data.items():
        if key not in names:
            known = names if where else [*names, "env"]
            raise UnknownName("key", f"{where}{key}", [f"{where}{name}" for name in known])
        _check_keys(value, hints[key], f"{where}{key}.")


def _dataclass_in(kind: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return kind
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next((item for item in typing.get_args(kind) if dataclasses.is_dataclass(item)), None)
    return None


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"])
        lines.append(f"{where}: {item['msg']} (received {item.get('input')!r})" if where else item["msg"])
    return "invalid settings: " + "; ".join(lines)
