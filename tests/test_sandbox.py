"""The sandbox: what a program gets, what it cannot reach, every limit, values that cross, the ways it can be missing."""

from __future__ import annotations

import gc
import math
import os
import platform
import struct
from pathlib import Path
from typing import Any

import pytest
from sandboxes import needs_sandbox

from ragen2.errors import ConfigError
from ragen2.sandbox import (
    Sandbox,
    SandboxFunction,
    SandboxLimits,
    SandboxResult,
    run_python,
)
from ragen2.sandbox.limits import MIB
from ragen2.sandbox.python_files import python_files
from ragen2.sandbox.seccomp import seccomp_filter
from ragen2.sandbox.watch import tree_of

ROOT = Path(__file__).resolve().parents[1]


QUICK = SandboxLimits(cpu_seconds=1, wall_seconds=2.0, memory_bytes=96 * MIB, output_bytes=10_000, file_bytes=MIB, processes=6)


@pytest.fixture(scope="module")
def shared() -> Any:
    """One sandbox for programs that end well."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def nothing_left() -> Any:
    """No process that the test started is there after it."""
    before = set(tree_of(os.getpid()))
    yield
    assert set(tree_of(os.getpid())) <= before


def lines(result: SandboxResult) -> list[str]:
    assert result.ok, result
    return result.stdout.decode().splitlines()


# What a program gets


@needs_sandbox
def test_input_output_and_exit_status() -> None:
    result = run_python("import sys\nprint(input() * 2)\nprint('aside', file=sys.stderr)\nsys.exit(3)", "ab\n")
    assert (result.stdout, result.stderr, result.exit_status, result.cause) == (b"abab\n", b"aside\n", 3, "ok")
    assert not result.ok and result.seconds > 0


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "given_input", "expected"),
    [
        ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", b"1 2\n3", b"6\n"),
        ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", bytes(range(256)), bytes(range(255, -1, -1))),
        ("import sys\nfor line in sys.stdin: print(line.strip() + '!')", b"a\nb\n", b"a!\nb!\n"),
        ("print(open(0).read().upper())", b"abc", b"ABC\n"),
        ("if __name__ == '__main__': print('main')", b"", b"main\n"),
        ("import sys; print(sys.argv, sys.modules['__main__'].__dict__ is globals())", b"", b"['main.py'] True\n"),
        ("exit()", b"", b""),
        ("import atexit; atexit.register(print, 'late'); print('early')", b"", b"early\nlate\n"),
        ("import threading\nthreading.Thread(target=lambda: print('thread')).start()", b"", b"thread\n"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(3))", b"", b"P(x=3)\n"),
        ("import re, json, math, heapq, bisect, itertools, collections, fractions, decimal, random; print('ok')", b"", b"ok\n"),
        ("print('é∑')", b"", "é∑\n".encode()),
        ("open('/tmp/a', 'w').write('x'); print(open('a').read())", b"", b"x\n"),
        ("import sys; print(len(sys.stdin.read()))", b"x" * 3_000_000, b"3000000\n"),
    ],
)
def test_ordinary_programs_work(shared: Sandbox, code: str, given_input: bytes, expected: bytes) -> None:
    assert shared.run(code, given_input).stdout == expected


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("1/0", 1, b"ZeroDivisionError"),
        ("def f(:", 1, b"SyntaxError"),
        ("import sys; sys.exit('no')", 1, b"no"),
        ("raise SystemExit(7)", 7, b""),
        ("import os; os._exit(9)", 9, b""),
        ("raise KeyboardInterrupt", 1, b"KeyboardInterrupt"),
        ("import numpy", 1, b"ModuleNotFoundError"),
        ("import ragen2", 1, b"ModuleNotFoundError"),
    ],
)
def test_errors_give_their_status(shared: Sandbox, code: str, status: int, told: bytes) -> None:
    result = shared.run(code)
    assert (result.exit_status, result.cause) == (status, "ok")
    assert told in result.stderr


@needs_sandbox
def test_the_hash_seed_is_fixed() -> None:
    code = "print([hash(x) for x in ('a', 'b', 'word')])"
    assert run_python(code).stdout == run_python(code).stdout != b""


@needs_sandbox
def test_runs_in_one_sandbox_share_no_files_and_no_processes(shared: Sandbox) -> None:
    code = (
        "import os\nos.makedirs('/tmp/d/e'); open('/tmp/d/e/f', 'w').close(); os.symlink('/usr', '/tmp/l'); os.chmod('/tmp/d', 0)"
    )
    assert shared.run(f"{code}\nif os.fork() == 0:\n    import time; time.sleep(60)").ok
    assert shared.run(
        "import os; os.chmod('/tmp/d', 0o777) if os.path.exists('/tmp/d') else None; print(os.path.exists('/tmp/l'))"
    )
    listed = """
import os
found = []
for n in range(3, 200):
    try:
        os.kill(n, 0); found.append(n)
    except OSError: pass
print(found == [os.getpid()])
"""
    assert lines(shared.run(listed)) == ["True"]


# What it cannot reach


@needs_sandbox
def test_it_sees_only_python(shared: Sandbox) -> None:
    places = [Path.home(), ROOT, ROOT / ".venv", "/etc/passwd", "/proc", "/sys", "/usr/bin/env", "/bin/sh", "/usr/share", "/var"]
    code = f"import os\nfor place in {[str(place) for place in places]!r}:\n    print(place, os.path.exists(place), end=' ')\n"
    told = shared.run(code).stdout.decode().split()
    interpreter = Path(python_files().executable)
    seen = [place for place, there in zip(told[::2], told[1::2], strict=True) if there == "True"]
    # a home folder may lie on the way to the interpreter; then it shows nothing else
    assert all(Path(place) in interpreter.parents for place in seen), seen
    walked = shared.run("import os\nprint(sorted(name for name in os.listdir('/')))")
    assert not {"proc", "sys", "home", "var", "mnt", "opt", "srv"} & set(walked.stdout.decode().split("'"))


@needs_sandbox
def test_no_installed_packages_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "helper_of_test.py").write_text("value = 41")
    tmp_path.chmod(0o755)  # what is shown must be readable by any user
    code = "import helper_of_test; print(helper_of_test.value + 1)"
    assert run_python(code).exit_status == 1
    assert lines(run_python(code, paths=[tmp_path])) == ["42"]
    write = f"open({str(tmp_path / 'new')!r}, 'w')"
    assert b"Read-only file system" in run_python(write, paths=[tmp_path]).stderr
    hidden = "import os, sysconfig\nplaces = [sysconfig.get_paths()[k] for k in ('purelib', 'platlib')]\n"
    assert lines(run_python(f"{hidden}print([os.listdir(p) for p in places if os.path.exists(p)])"))[0] in (
        "[]",
        "[[], []]",
        "[[]]",
    )
    with pytest.raises(ConfigError, match="does not exist"):
        Sandbox(paths=[tmp_path / "nowhere"])


@needs_sandbox
def test_nothing_but_tmp_can_be_written(shared: Sandbox) -> None:
    code = """
import os, sys
written = []
for folder in (os.path.dirname(os.__file__), os.path.dirname(sys.executable), "/", "/dev", "/dev/shm", "/usr", "/usr/lib"):
    try:
        open(folder + "/x", "w"); written.append(folder)
    except OSError:
        pass
try:
    open(os.__file__, "a"); written.append(os.__file__)
except OSError:
    pass
print(written)
"""
    assert lines(shared.run(code)) == ["[]"]


@needs_sandbox
def test_environment_user_and_terminal(shared: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_TEST", "1")
    code = "import os\nprint(sorted(os.environ), os.getuid() == 0, os.getgroups(), os.getsid(0) != 0)"
    with Sandbox() as sandbox:
        told = lines(sandbox.run(code))[0]
    assert "SECRET" not in told and "PYTHONHASHSEED" in told
    if os.geteuid() == 0:
        assert " False []" in told
        for attempt in ("os.setuid(0)", "os.setresuid(0, 0, 0)", "os.setgroups([0])", "os.chown('/tmp', 0, 0)", "os.chroot('/')"):
            assert b"PermissionError" in shared.run(f"import os; {attempt}").stderr, attempt
    assert b"OSError" in shared.run("open('/dev/tty')").stderr


@needs_sandbox
def test_only_its_own_descriptors_are_open(shared: Sandbox) -> None:
    code = """
import os
for fd in range(64):
    try:
        os.fstat(fd); print(fd)
    except OSError: pass
"""
    assert lines(shared.run(code)) == ["0", "1", "2"]


_CALLS = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def refused(*call):
    return libc.syscall(*call) == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS)
"""


@needs_sandbox
@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls of x86-64")
def test_dangerous_system_calls_are_refused(shared: Sandbox) -> None:
    code = f"""{_CALLS}
import os, socket
names = dict(unshare_user=(272, 0x10000000), setns=(308, 0, 0), mount=(165, 0, 0, 0, 0, 0), ptrace=(101, 0, 0, 0, 0),
    memfd=(319, b"x", 0),
    read_memory=(310, os.getppid(), 0, 0, 0, 0, 0), bpf=(321, 0, 0, 0), perf=(298, 0, 0, 0, 0, 0), keyctl=(250, 0, 0, 0, 0),
    shmget=(29, 0, 4096, 0o1600), userfaultfd=(323, 0), clone_newuser=(56, 0x10000000 | 17, 0, 0, 0, 0), clone3=(435, 0, 0),
    io_uring=(425, 1, 0), pidfd_getfd=(438, 0, 0, 0), fsopen=(430, b"tmpfs", 0), other_convention=(0x40000000 + 39,))
def long(x): return ctypes.c_long(x) if isinstance(x, int) else x
print(sorted(name for name, call in names.items() if not refused(*map(long, call))))
"""
    assert lines(shared.run(code)) == ["[]"]


@needs_sandbox
def test_no_network(shared: Sandbox) -> None:
    code = """
import socket
opened = []
for family in (socket.AF_INET, socket.AF_INET6, 16, 38, 40):
    try:
        socket.socket(family, socket.SOCK_STREAM if family < 16 else socket.SOCK_RAW); opened.append(family)
    except OSError:
        pass
a, b = socket.socketpair()
a.send(b"x")
print(opened, b.recv(1))
"""
    told = lines(shared.run(code))[0]
    assert told == "[] b'x'" if seccomp_filter() else told.endswith("b'x'")


def test_the_filter_is_a_program_with_targets_inside() -> None:
    for machine in ("x86_64", "aarch64"):
        program = seccomp_filter(machine)
        assert program is not None and len(program) % 8 == 0
        steps = list(struct.iter_unpack("<HBBI", program))
        assert steps[-1][0] == 0x06
        for at, (code, jump_true, jump_false, _) in enumerate(steps):
            if code & 7 == 5:
                assert at + 1 + max(jump_true, jump_false) < len(steps)
    assert seccomp_filter("vax") is None


# Limits


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "causes"),
    [
        ("while True: pass", {"time"}),
        ("import time; time.sleep(100)", {"time"}),
        (
            "import signal\nfor n in {*range(1, 32)} - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile 1: pass",
            {"time"},
        ),
        ("9**9**9**9", {"time"}),
        ("import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", {"time"}),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", {"memory"}),
        ("bytearray(1 << 40)", {"memory"}),
        ("import mmap\nkept = [mmap.mmap(-1, 1 << 30)]", {"ok", "memory"}),
        ("while True: print('x' * 1000)", {"output"}),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", {"output"}),
        ("import os\nwhile True: os.fork()", {"processes", "time", "memory"}),
        (
            "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
            {"processes"},
        ),
        ("import os; os.kill(os.getpid(), 9)", {"killed"}),
        ("import ctypes; ctypes.string_at(0)", {"killed"}),
        ("import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()", {"killed", "memory"}),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", {"killed"}),
        ("import os, signal; os.kill(os.getppid(), signal.SIGSTOP); os._exit(0)", {"time"}),
        ("import os, signal; os.kill(-1, signal.SIGKILL); os._exit(0)", {"killed", "ok"}),
        ("x = 1\x00", {"refused"}),
        ("x = '\ud800'", {"refused"}),
        ("#" * 300_000, {"refused"}),
    ],
)
@pytest.mark.usefixtures("nothing_left")
def test_over_a_limit_ends_with_its_cause(code: str, causes: set[str]) -> None:
    with Sandbox(QUICK) as sandbox:
        result = sandbox.run(code, seconds=0.4 if causes == {"time"} else None)
        assert result.cause in causes, result
        assert len(result.stdout) <= QUICK.output_bytes and len(result.stderr) <= max(QUICK.output_bytes, 200)
        assert (result.exit_status is None) == (result.cause not in ("ok",) and result.exit_status not in (101, 102))
        assert sandbox.run("print(6 * 7)").stdout == b"42\n"


@needs_sandbox
def test_memory_of_many_processes_counts_together() -> None:
    code = "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        x = bytearray(60 << 20); break\ntime.sleep(9)"
    assert run_python(code, limits=QUICK).cause == "memory"


@needs_sandbox
def test_disk_is_bounded() -> None:
    code = """
import os
total = 0
try:
    for n in range(1000):
        with open(f"/tmp/{n}", "wb") as file:
            for _ in range(100): total += file.write(bytes(100_000)); file.flush()
except OSError as error:
    print(total <= 1 << 20, error.strerror)
"""
    told = lines(run_python(code, limits=QUICK))
    assert told == ["True No space left on device"] or told == ["True File too large"]


@needs_sandbox
def test_limits_cannot_be_raised(shared: Sandbox) -> None:
    code = """
import resource
for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CPU", "CORE"):
    try:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (-1, -1)); print("raised", name)
    except (ValueError, OSError): pass
"""
    assert lines(shared.run(code)) == []


@needs_sandbox
@pytest.mark.usefixtures("nothing_left")
def test_a_daemon_neither_survives_nor_holds_up_the_end() -> None:
    with Sandbox() as sandbox:
        code = "import os, time\nif os.fork() == 0:\n    os.setsid(); os.fork() or time.sleep(600); os._exit(0)\nprint('done')"
        result = sandbox.run(code)
        assert result.stdout == b"done\n" and result.ok
        assert len(tree_of(sandbox.start().pid)) == 3  # bubblewrap's two, and the one that waits for orders


@needs_sandbox
def test_no_descriptor_is_left_open() -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    run_python("1")
    before = count()
    run_python("print(1)")
    run_python("while True: print(1)", limits=QUICK)
    run_python("\x00")
    with Sandbox(QUICK) as sandbox, SandboxFunction(sandbox, "def f(): return 1", "f") as function:
        assert function.call([]).tree == 1
    with Sandbox(QUICK) as sandbox, SandboxFunction(sandbox, "def f(): import os; os._exit(0)", "f") as function:
        assert function.call([]).error is not None
    assert count() == before


@pytest.mark.parametrize(
    "options",
    [
        {"cpu_seconds": 0},
        {"cpu_seconds": 1.5},
        {"wall_seconds": math.nan},
        {"memory_bytes": 1},
        {"processes": True},
        {"open_files": "9"},
    ],
)
def test_limits_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        SandboxLimits(**options)
