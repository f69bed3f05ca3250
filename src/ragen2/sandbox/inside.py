"""The program that serves inside the sandbox: it forks a process for each order it is given and reports how that ended.

It runs as `__main__` of a bare interpreter, its compiled form sent in over the control socket, and imports the standard library
only. Nothing it holds is secret: it never sees an expected output. The process that runs the code under test has lost the control
socket, has only the file descriptors of its own order, and cannot raise its limits again.
"""

import _socket
import fcntl
import marshal
import os
import resource
import signal
import sys

MEMORY_EXIT, TASKS_EXIT = 101, 102
"""Exit statuses of a program that ended because memory, or processes and threads, could not be had."""

_CODE, _REQUEST, _REPLY = 3, 4, 5
_FIRST_FREE = 40
_MAX_FDS = 8


def serve(control_fd, parts):
    """Serve orders until the other end closes. In the forked process of an order, returns the work to do; else None."""
    control = _socket.socket(fileno=control_fd)
    settings = marshal.loads(control.recv(1 << 16))
    if settings["uid"] is not None:
        os.setgroups([])
        os.setresgid(settings["uid"], settings["uid"], settings["uid"])
        os.setresuid(settings["uid"], settings["uid"], settings["uid"])
    sys.path[:0] = settings["paths"]
    control.send(b"ready")
    while True:
        data, ancillary, _, _ = control.recvmsg(1 << 18, _socket.CMSG_SPACE(4 * _MAX_FDS))
        if not data:
            return None
        order, fds = marshal.loads(data), _descriptors(ancillary)
        child = os.fork()
        if child == 0:
            control.close()
            _become(order, fds, settings)
            return lambda: _KINDS[order["kind"]](order, parts)
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(child, 0)
        _sweep(child, settings["isolated"])
        control.send(b"%d" % os.waitstatus_to_exitcode(status))


def _descriptors(ancillary):
    fds = []
    for _, _, data in ancillary:
        fds += [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data) - 3, 4)]
    return fds


def _become(order, fds, settings):
    """In the new process: only the order's descriptors, numbered from 0, in a process group of its own, under its limits."""
    os.setpgid(0, 0)
    safe = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_FREE) for fd in fds]
    for target, fd in enumerate(safe):
        os.dup2(fd, target, inheritable=target < 3)
    os.closerange(len(fds), settings["fd_end"])
    for name, soft, hard in order["limits"]:
        resource.setrlimit(getattr(resource, name), (soft, hard))
    # they stay open for as long as the process lives
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
    sys.argv = ["main.py"]


def _sweep(child, isolated):
    """End whatever the order's process left running, and take away its files."""
    if not isolated:
        try:
            os.killpg(child, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        return
    if os.getpid() != 2:  # never signal "everyone" outside a process namespace of our own
        raise SystemExit("not alone in a process namespace")
    try:
        while True:
            os.kill(-1, signal.SIGKILL)
            os.sched_yield()
    except ProcessLookupError:
        pass
    _empty_tmp()


def _empty_tmp():
    for folder, folders, files in os.walk("/tmp", topdown=False):
        for path in (os.path.join(folder, name) for name in files + folders):
            try:
                os.unlink(path) if os.path.islink(path) or not os.path.isdir(path) else os.rmdir(path)
            except OSError:  # a folder closed to its own owner: it stays until the sandbox ends, shortly
                continue


def _read_code():
    parts = []
    while data := os.read(_CODE, 1 << 20):
        parts.append(data)
    os.close(_CODE)
    return b"".join(parts)


def _add_exit():
    # what the site module adds, which is not loaded here
    import _sitebuiltins
    import builtins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D")


def _run_program(order, parts):
    """Run the text as a program of its own, then end as the interpreter does: threads, exit handlers, buffers, status."""
    _add_exit()
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    status = _status_of(lambda: exec(compile(_read_code().decode(), "main.py", "exec", dont_inherit=True), main.__dict__))
    for module, name in (("threading", "_shutdown"), ("atexit", "_run_exitfuncs")):
        if module in sys.modules:
            status = _status_of(getattr(sys.modules[module], name)) or status
    status = _status_of(lambda: (sys.stdout.flush(), sys.stderr.flush())) or status
    # not the interpreter's own end, which frees every object and costs more than most programs
    os._exit(status)


def _status_of(work):
    """Exit status of a piece of the program; what it raises goes to standard error, as usual."""
    try:
        work()
        return 0
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return (leaving.code or 0) & 255
        print(leaving.code, file=sys.stderr)
        return 1
    except BaseException as error:  # foreign code: whatever it raises is its end
        sys.__excepthook__(type(error), error, error.__traceback__)
        if isinstance(error, MemoryError):
            return MEMORY_EXIT
        no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
        return TASKS_EXIT if no_thread or isinstance(error, BlockingIOError) else 1


def _module(code):
    module = type(sys)("values")
    exec(code, module.__dict__)
    return module


def _read_frame(fd):
    head = _read_exactly(fd, 4)
    return None if head is None else _read_exactly(fd, int.from_bytes(head, "big"))


def _read_exactly(fd, size):
    parts = []
    while size:
        data = os.read(fd, min(size, 1 << 20))
        if not data:
            return None
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _write_frame(fd, data):
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(fd, data) :]


def _serve_function(order, parts):
    """Load the text, then answer calls of its function: [token, arguments, keywords] in, [token, kind, value] out."""
    _add_exit()
    values = _module(parts["values"])
    entry, trouble = _load_function(order)
    while (frame := _read_frame(_REQUEST)) is not None:
        token, arguments, keywords = values.load(frame)
        if entry is None:
            reply = [token, "error", trouble]
        else:
            try:
                reply = [token, "value", entry(*arguments, **keywords)]
            except BaseException as error:  # foreign code: whatever it raises is its answer to this call
                reply = [token, "error", type(error).__name__]
        try:
            text = values.dump(reply)
        except ValueError as error:
            text = values.dump([token, "error", f"the result {error}"[:300]])
        _write_frame(_REPLY, text)
    os._exit(0)


def _load_function(order):
    """(the function, ""), or (None, why there is none)."""
    module = type(sys)("solution")
    sys.modules["solution"] = module
    space, name = module.__dict__, order["name"]
    try:
        exec(compile(order["preamble"], "preamble.py", "exec", dont_inherit=True), space)
        space.pop(name, None)
        exec(compile(_read_code().decode(), "main.py", "exec", dont_inherit=True), space)
        entry = space.get(name)
        if entry is None and isinstance(space.get("Solution"), type):
            entry = getattr(space["Solution"](), name, None)
    except BaseException as error:  # foreign code: whatever it raises means that there is no function
        return None, type(error).__name__
    return (entry, "") if callable(entry) else (None, f"no function {name}")


def _run_check(order, parts):
    """Run trusted test code on a function that is called elsewhere; tell how many of its tests hold."""
    values = _module(parts["values"])

    class Failed(Exception):
        """The function under test raised, ended or gave what is no value."""

    def candidate(*arguments, **keywords):
        _write_frame(_REPLY, values.dump(["call", list(arguments), keywords]))
        frame = _read_frame(_REQUEST)
        if frame is None:
            os._exit(1)
        kind, value = values.load(frame)
        if kind != "value":
            raise Failed(value)
        return value

    source = marshal.loads(_read_code())
    count = {"passed": 0, "failed": 0}

    def hold(kind):
        count[kind] += 1

    space = {"__name__": "check", "_hold": hold}
    exec(compile(source["setup"], "setup.py", "exec", dont_inherit=True), space)
    exec(compile(source["check"], "check.py", "exec", dont_inherit=True), space)
    total = source["total"]
    if total is None:
        _seed(source)
        space["check"](space[order["name"]])
        total = count["passed"] if not count["failed"] else -1
        count.update(passed=0, failed=0)
    why = ""
    _seed(source)
    try:
        space["check"](candidate)
    except Exception as error:  # a test that raises is a test that does not hold
        hold("failed")
        why = type(error).__name__
    _write_frame(_REPLY, values.dump(["verdict", count["passed"], count["failed"], total, why]))
    os._exit(0)


def _seed(source):
    if "random" in source["check"]:
        import random

        random.seed(0)


_KINDS = {"program": _run_program, "function": _serve_function, "check": _run_check}
