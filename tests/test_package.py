"""The package as its users meet it: what it loads, what its files hold, what its documents promise."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ragen2
from ragen2 import errors
from ragen2.cli.exit_codes import CODES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "ragen2"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LAYERS = (
    ("errors", "storage", "trajectory", "yaml_text", "cache"),
    ("sandbox", "provers"),
    ("envs",),
    ("filtering", "algorithms", "engines", "prompting"),
    ("diagnostics", "rollout"),
    ("training",),
    ("experiments", "reports", "integrations"),
    ("cli",),
)
"""Lowest first: a module imports from its own layer and those before it."""


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_one_version() -> None:
    assert ragen2.__version__ == importlib.metadata.version("ragen2") == PROJECT["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == PROJECT["version"]


@pytest.mark.parametrize("module", ["ragen2", "ragen2.filtering", "ragen2.algorithms", "ragen2.diagnostics"])
def test_the_core_loads_numpy_only(module: str) -> None:
    code = f"import sys; before = set(sys.modules); import {module}; print(*sorted(m for m in sys.modules if m not in before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    outside = {name for name in loaded if name not in sys.stdlib_module_names and not name.startswith("_")}
    assert outside <= {"ragen2", "numpy"}


def test_nothing_imports_upward() -> None:
    level = {name: k for k, names in enumerate(LAYERS) for name in names}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in ("__init__", "__main__"):
            continue
        assert own in level, f"{own} has no layer: give it one"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                parts = name.split(".")
                if parts[0] == "ragen2" and len(parts) > 1 and level.get(parts[1], 0) > level[own]:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_sizes_of_the_house() -> None:
    long_files, long_functions = [], []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 400:
            long_files.append(path.name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 80:
                long_functions.append(f"{path.name}: {node.name}")
    assert long_files == []
    assert long_functions == []


def test_pins_fit_the_requirements() -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            pins[canonicalize_name(name)] = version
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *extras["train"], *extras["dev"]]
    needed: list[Requirement] = []
    while asked:
        requirement = Requirement(asked.pop())
        if requirement.name == PROJECT["name"]:
            asked += [text for extra in requirement.extras for text in extras[extra]]
        else:
            needed.append(requirement)
    for requirement in needed:
        name = canonicalize_name(requirement.name)
        if name in pins:
            assert requirement.specifier.contains(pins[name]), requirement
    assert {canonicalize_name(r.name) for r in needed} - set(pins) <= {"build"}


def test_a_missing_package_names_an_extra_that_exists() -> None:
    for path in PACKAGE.rglob("*.py"):
        for extra in re.findall(r"ragen2\[([\w-]+)\]", path.read_text(encoding="utf-8")):
            assert extra in PROJECT["optional-dependencies"], f"{path.name} names ragen2[{extra}]"


def test_exit_codes_are_documented() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)}
    raised = {item.exit_code for item in vars(errors).values() if isinstance(item, type) and issubclass(item, errors.Ragen2Error)}
    assert raised | {0, 6, 130} | set(CODES.values()) == documented


def test_links_between_documents_lead_somewhere() -> None:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("name", ["README.md", "docs/rollout-schema.md", "docs/adding-an-algorithm.md"])
def test_code_in_the_documents_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = python_blocks(ROOT / name)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {"__name__": "document"})
    if name == "README.md":
        assert "[[" in capsys.readouterr().out


def test_the_documented_environment_keeps_its_contract() -> None:
    (block,) = python_blocks(ROOT / "docs" / "writing-an-environment.md")
    names: dict = {"__name__": "document"}
    exec(compile(block, "writing-an-environment.md", "exec"), names)
    assert names["report"].ok, str(names["report"])
    assert not names["report"].skipped, str(names["report"])
    env = ragen2.make("lights", lamps=6)
    assert len(env.reset(0, 0).text) == 6


def test_recipes_of_the_readme_exist() -> None:
    table = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    recipes = {path.stem for path in (PACKAGE / "training" / "recipes").glob("*.yaml")}
    assert recipes
    assert recipes == set(table)


def test_an_old_python_is_refused_in_words(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1" && exit 0\nexit 1\n')
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        ["make", "train", f"PYTHON={old}", f"VENV={tmp_path / 'env'}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs Python 3.11 or newer" in done.stderr
    assert "Python 3.9.1" in done.stderr
    assert not (tmp_path / "env").exists()


@pytest.mark.slow
def test_wheel_and_sdist_build_and_install(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], check=True, capture_output=True)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("ragen2/reports/report.css", "ragen2/training/recipes/frozen-lake.yaml", "ragen2/py.typed"):
        assert wanted in names
    assert not [name for name in names if name.startswith("tests/")]
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for package in (wheel, sdist):
        home = tmp_path / package.suffix.lstrip(".")
        venv.create(home, with_pip=True)
        run = {"check": True, "capture_output": True, "text": True, "env": clean, "cwd": tmp_path}
        subprocess.run([home / "bin" / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", package], **run)
        shown = subprocess.run([home / "bin" / "ragen2", "--version"], **run).stdout
        assert shown.split()[-1] == PROJECT["version"]
        subprocess.run([home / "bin" / "ragen2", "train", "frozen-lake", "--print-config"], **run)
        code = "import ragen2; print(len(ragen2.list_envs()), ragen2.make('frozen-lake').reset(0, 0).text)"
        assert subprocess.run([home / "bin" / "python", "-c", code], **run).stdout.startswith("4")


def test_every_setting_is_documented() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build_configuration.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
