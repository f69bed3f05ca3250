"""What crosses the sandbox's border: values as text, calls of a function inside, trusted tests beside it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxes import needs_sandbox

from ragen2.errors import SandboxBroken
from ragen2.sandbox import CheckScript, Sandbox, SandboxFunction, run_check
from ragen2.sandbox.checked import counted
from ragen2.sandbox.values import MAX_DEPTH, NotAValue, dump, from_tree, load, read_tree, to_tree

# Values

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


@given(plain)
def test_values_cross_unchanged(value: object) -> None:
    crossed = load(dump(value))
    assert crossed == value and type(crossed) is type(value)
    assert repr(crossed) == repr(value) or isinstance(value, (dict, frozenset, list, tuple))


def test_what_is_special_about_values() -> None:
    assert math.isnan(load(dump(math.nan)))  # type: ignore[arg-type]
    assert load(dump({1, 2})) == {1, 2} and load(dump(bytearray(b"a"))) == b"a"

    class Right(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    crossed = load(dump([Right(3)]))
    assert crossed == [3] and crossed != [4] and type(crossed[0]) is int  # type: ignore[index]
    for foreign in (object(), lambda: 1, (x for x in ()), range(3), Right, open):
        with pytest.raises(NotAValue, match="no plain value"):
            dump(foreign)
    deep: Any = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    cycle: Any = []
    cycle.append(cycle)
    for too_much in (deep, cycle, [0] * 400_000):
        with pytest.raises(NotAValue, match="nested"):
            to_tree(too_much)


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"{",
            b"NaN",
            b"Infinity",
            b"1e999",
            b"{}",
            b'{"t":1}',
            b'{"x":[]}',
            b'{"t":[],"s":[]}',
            b'{"d":[[1]]}',
            b'{"d":{}}',
        ),
        *(
            b'{"f":"1"}',
            b'{"f":["nan"]}',
            b'{"b":"0"}',
            b'{"b":"zz"}',
            b'{"b":1}',
            b'{"c":[1]}',
            b'{"c":["a",1]}',
            b"\xff",
            b"[" * 100_000,
        ),
        *(b"1" * 5000, b"[" * 70 + b"]" * 70),
    ],
)
def test_texts_that_are_no_value_are_refused(text: bytes) -> None:
    with pytest.raises(NotAValue):
        read_tree(text)


def test_unhashable_members_are_refused_when_built() -> None:
    for text in (b'{"s":[[1]]}', b'{"d":[[[1],2]]}'):
        with pytest.raises(NotAValue, match="cannot be built"):
            from_tree(read_tree(text))


# Functions and tests


@needs_sandbox
def test_a_function_is_called_by_values() -> None:
    code = "print('noise')\ndef f(x, *, y=1):\n    print('more')\n    x.append(y)\n    return {'got': (x, 1j)}"
    with Sandbox() as sandbox:
        with SandboxFunction(sandbox, code, "f") as function:
            mine = [1]
            assert from_tree(function.call([mine], {"y": 2}).tree) == {"got": ([1, 2], 1j)}
            assert mine == [1]
            assert function.call([3]).error == "AttributeError"
            assert from_tree(function.call([[]]).tree) == {"got": ([1], 1j)}
        assert function.call([[]]).error == "closed"
        method = "class Solution:\n    def f(self, x): return helper(x)"
        with SandboxFunction(sandbox, method, "f", preamble="def helper(x): return x + 1\ndef f(x): return 0") as function:
            assert function.call([1]).tree == 2
        for broken, error in (
            ("def f(", "SyntaxError"),
            ("x = 1", "no function f"),
            ("f = 3", "no function f"),
            ("1/0", "ZeroDivisionError"),
        ):
            with SandboxFunction(sandbox, broken, "f", preamble="def f(x): return x") as function:
                assert function.call([1]).error == error
        with SandboxFunction(sandbox, "def f(x): return len(x)", "f") as function:
            assert function.call(["y" * 900_000]).tree == 900_000
            with pytest.raises(NotAValue):
                function.call([object()])


@needs_sandbox
def test_trusted_tests_run_apart_from_the_function() -> None:
    setup = "def helper(x):\n    return x * 2\ndef f(x):\n    return helper(x) + 1\n"
    check = (
        "def check(candidate):\n    assert True, 'none'\n    for x in range(4):\n        assert candidate(x) == f(x)\n"
        "    assert candidate(helper(5)) == 21\n"
    )
    script = CheckScript("f", setup, check)
    outcomes = []
    with Sandbox() as tester, Sandbox() as sandbox:
        for code in (
            "def f(x): return 2 * x + 1",
            "def f(x): return 1",
            "def f(x): raise ValueError",
            "helper = f = lambda x: x",
        ):
            with SandboxFunction(sandbox, code, "f") as function:
                outcomes.append(run_check(tester, function, script))
        assert [(outcome.passed, outcome.total) for outcome in outcomes] == [(5, 5), (1, 5), (0, 5), (0, 5)]
        assert outcomes[2].error == "ValueError" and outcomes[0].counted == 5
        with SandboxFunction(sandbox, "def f(x): return 1", "f") as function, pytest.raises(SandboxBroken, match="reference"):
            run_check(
                tester, function, CheckScript("f", "def f(x): return 0", "def check(candidate):\n    assert candidate(1) == 1")
            )
        with SandboxFunction(sandbox, "def f(x): return 1", "f") as function, pytest.raises(SandboxBroken, match="ZeroDivision"):
            run_check(tester, function, CheckScript("f", "1/0", "def check(candidate):\n    assert candidate(1) == 1"))
        with SandboxFunction(sandbox, "def f(x): return 1", "f") as function, pytest.raises(SandboxBroken, match="no assert"):
            run_check(tester, function, CheckScript("f", "def f(x): return 1", "def check(candidate):\n    candidate(1)"))


def test_a_check_that_raises_midway_loses_the_rest() -> None:
    source = counted("def check(candidate):\n    assert 1 == candidate(0)\n    assert 3, 'constant'\n")
    space: dict[str, Any] = {"held": []}
    space["_hold"] = space["held"].append
    exec(compile(source, "check", "exec"), space)
    space["check"](lambda x: 1)
    space["check"](lambda x: 1 / x)
    assert space["held"] == ["passed", "failed"]
