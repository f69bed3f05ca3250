"""The sandbox where bubblewrap is missing, broken or not for root, and what is left after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from sandboxes import needs_sandbox

from ragen2.errors import MissingProgram, SandboxBroken, SandboxUnavailable, UnknownName
from ragen2.sandbox import Sandbox, SandboxLimits, SandboxResult, UnsafeSandbox, run_python
from ragen2.sandbox import bubblewrap as bubblewrap_module
from ragen2.sandbox.limits import MIB
from ragen2.sandbox.process import SandboxProcess
from ragen2.sandbox.watch import tree_of

ROOT = Path(__file__).resolve().parents[1]


QUICK = SandboxLimits(cpu_seconds=1, wall_seconds=2.0, memory_bytes=96 * MIB, output_bytes=10_000, file_bytes=MIB, processes=6)


@pytest.fixture
def nothing_left() -> Any:
    """No process that the test started is there after it."""
    before = set(tree_of(os.getpid()))
    yield
    assert set(tree_of(os.getpid())) <= before


def lines(result: SandboxResult) -> list[str]:
    assert result.ok, result
    return result.stdout.decode().splitlines()


# Where it cannot be had


def order_until_it_fails(process: SandboxProcess) -> None:
    while True:
        process.order("program", [0])


def test_without_bubblewrap_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    bubblewrap_module.find_bubblewrap.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match=r"apt-get install bubblewrap.*dnf install bubblewrap.*sandbox=\"unsafe\""):
            run_python("print(1)")
    finally:
        bubblewrap_module.find_bubblewrap.cache_clear()
    assert SandboxUnavailable.exit_code == MissingProgram.exit_code


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'bubblewrap 0.4.1'", "version 0.5 or later"),
        ("exit 1", "--version failed"),
        (
            "[ \"$1\" = --version ] && echo 'bubblewrap 0.8.0' || { echo 'No permissions to create new namespace' >&2; exit 1; }",
            "No permissions",
        ),
    ],
)
@pytest.mark.usefixtures("nothing_left")
def test_a_bubblewrap_that_does_not_work_is_named(
    script: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    bubblewrap_module.find_bubblewrap.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match=told):
            run_python("print(1)")
    finally:
        bubblewrap_module.find_bubblewrap.cache_clear()


@pytest.mark.usefixtures("nothing_left")
def test_unsafe_is_asked_for_and_warns() -> None:
    with pytest.raises(UnknownName, match="unsafe"):
        Sandbox(mode="unsfe")
    with pytest.warns(UnsafeSandbox, match="plain process"):
        result = run_python("import os; print(os.getcwd()); open('left', 'w').close()", sandbox="unsafe")
    assert not os.path.exists(lines(result)[0])
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nelse:\n    while True: pass"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsafeSandbox)
        with Sandbox(QUICK, mode="unsafe") as sandbox:
            assert sandbox.run("import os\nprint(os.environ.get('PATH'))").stdout == b"\n"
            assert sandbox.run("while True: print(1)").cause == "output"
            assert sandbox.run(code, seconds=0.4).cause == "time"


@needs_sandbox
@pytest.mark.usefixtures("nothing_left")
def test_a_sandbox_that_died_is_replaced_or_told() -> None:
    with Sandbox() as sandbox:
        process = sandbox.start()
        process.wait_ready()
        os.kill(process.pid, 9)
        with pytest.raises(SandboxBroken):
            order_until_it_fails(process)
        assert sandbox.run("print(1)").stdout == b"1\n"
    sandbox.close()


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to try it")
def test_it_works_as_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    python = "/usr/bin/python3"
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from ragen2.sandbox import run_python, SandboxLimits\n"
        "import os; assert os.getuid() == 4242\n"
        "bomb = 'import os\\nprint(os.getpid() < 9, 6 * 7, flush=True)\\nwhile True: os.fork()'\n"
        "r = run_python(bomb, limits=SandboxLimits(wall_seconds=9, processes=4))\n"
        "print(r.cause, r.stdout)\n"
    )
    ready = f"import sys, os; assert sys.version_info >= (3, 11); os.setuid(4242); os.stat({str(ROOT / 'src')!r})"
    if not os.path.exists(python) or subprocess.run([python, "-c", ready], capture_output=True).returncode != 0:
        pytest.skip("needs a system Python of 3.11 or later that another user may run, and a checkout that one may read")
    # the package's own __init__ needs numpy, which the system's Python may lack: an empty package stands in for it
    stand_in = (
        "import types; package = types.ModuleType('ragen2'); package.__path__ = [sys.argv[1] + '/ragen2']\n"
        "sys.modules['ragen2'] = package\n"
    )
    program = code.replace("from ragen2.sandbox", f"{stand_in}from ragen2.sandbox", 1)
    run = subprocess.run(
        [python, "-c", program, str(ROOT / "src")], user=4242, group=4242, extra_groups=[], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-800:]
    assert run.stdout.strip() == "processes b'True 42\\n'"


def test_importing_the_sandbox_loads_the_standard_library_only() -> None:
    code = (
        "import sys, ragen2; before = set(sys.modules); import ragen2.sandbox\n"
        "print({m.partition('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names - {'ragen2'})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
