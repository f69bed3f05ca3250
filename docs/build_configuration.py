"""Writes docs/configuration.md from the settings' own docstrings: python docs/build_configuration.py (--check only compares)."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "src" / "ragen2"
TARGET = DOCS / "configuration.md"

RENAMED = {"environments": "env"}
"""Keys of the run that people write in another way."""
LOOSE = {"warmup": "WarmupConfig"}
"""Keys typed as a mapping, and the class whose fields they hold."""
SHARED_DEFAULTS = {"AlgorithmConfig": "ResolvedAlgorithm"}
"""Classes whose None means "the algorithm's own value", and where the shared values stand."""

HEAD = """# Settings

Made by `docs/build_configuration.py` from the settings' own docstrings; do not edit by hand.

A run is made of settings in sections. They come from, each over the one before: the defaults below, the recipe (a name, or a YAML
file of your own), the preset, and overrides on the command line:

```
ragen2 train sokoban-5x5-1box algorithm=grpo filter.top_p=0.8 env.boxes=1 seed=3
ragen2 train my-recipe.yaml preset=paper --print-config
```

- `--print-config` shows the result and stops; it is a valid recipe file.
- A wrong key is refused and the nearest right one named. Values are YAML: `1e-4`, `true`, `null`, `[1, 8]`.
- `algorithm=grpo` is short for `algorithm.name=grpo`; so are `model=`, `filter=` (its `mode`) and `env=` (its `id`).
- Keys of `env` that are not listed are the environment's own options (`env.slip=0.2`; see `ragen2 envs`). Several environments:
  `environments` in a recipe is a list of what `env` is one of.
- A dash as default: the key must be given.
"""


@dataclass(frozen=True)
class Setting:
    """A field: its name, type and default as written, and its docstring."""

    name: str
    kind: str
    default: str
    about: str


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class of the package by name, read from the source without importing it."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def settings_of(name: str) -> tuple[str, list[Setting]]:
    """Docstring and fields of a dataclass."""
    owner = classes()[name]
    found = []
    for node, following in zip(owner.body, [*owner.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = "–" if node.value is None else _default(node.value)
            found.append(Setting(node.target.id, ast.unparse(node.annotation), default, _docstring(following)))
    return ast.get_docstring(owner) or "", found


def document() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_sections("RunConfig", "")])


def _sections(name: str, key: str) -> list[str]:
    """The section of a class, then those of the settings classes among its fields."""
    about, settings = settings_of(name)
    shared = {item.name: item.default for item in settings_of(SHARED_DEFAULTS[name])[1]} if name in SHARED_DEFAULTS else {}
    prefix = f"{key}." if key else ""
    rows, nested = [], []
    for item in settings:
        inner = LOOSE.get(item.name) or next(
            (word for word in re.findall(r"\w+", item.kind) if word.endswith("Config") and word in classes()), None
        )
        if inner is None:
            rows.append(_row(prefix, item, shared))
        else:
            nested.append((inner, prefix + RENAMED.get(item.name, item.name)))
    title = f"`{key}`" if key else "The run"
    table = "| key | default | what |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    own = f"## {title}\n\n{_flat(about)}\n\n{table}"
    return [own, *(text for inner, where in nested for text in _sections(inner, where))]


def _row(prefix: str, item: Setting, shared: dict[str, str]) -> str:
    default = shared.get(item.name, item.default)
    choices = item.kind.removeprefix("Literal[").removesuffix("]") if item.kind.startswith("Literal[") else ""
    about = _flat(item.about)
    if choices and not all(choice.strip("' ") in about for choice in choices.split(",")):
        about = f"{about} One of {choices.replace(chr(39), '')}.".strip()
    return f"| `{prefix}{item.name}` | `{default}` | {about} |".replace("`–`", "–")


def _default(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        made = next((keyword.value for keyword in node.keywords if keyword.arg == "default_factory"), None)
        return "{}" if made is not None and ast.unparse(made) == "dict" else "–"
    text = ast.unparse(node)
    return {"None": "null", "True": "true", "False": "false"}.get(text, text.strip("'"))


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    wanted = document()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != wanted:
            sys.exit("docs/configuration.md is out of date: run `python docs/build_configuration.py`")
    else:
        TARGET.write_text(wanted, encoding="utf-8")
