"""Plain values as JSON text, for the way into the sandbox and out of it.

Only None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and dict can cross. An object of any other class
cannot, so one that claims to equal everything never reaches a comparison. Lists are JSON lists; every other container is an
object of one key, its tag. This file also runs inside the sandbox: it imports the standard library only.
"""

import json
import math

MAX_DEPTH = 60
MAX_NODES = 300_000
"""Values in one message, those inside containers counted."""

_CONTAINERS = {"t": tuple, "s": set, "z": frozenset}


class NotAValue(ValueError):
    """A value of a class that cannot cross, or a text that is no value; too deep or too large counts as that."""


def dump(value: object) -> bytes:
    """The text of a Python value. Raises NotAValue."""
    return write_tree(to_tree(value))


def load(data: bytes) -> object:
    """The Python value of a text. Raises NotAValue."""
    return from_tree(read_tree(data))


def write_tree(tree: object) -> bytes:
    """The text of a tree. Raises NotAValue where a number is too long for one."""
    try:
        return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise NotAValue(f"cannot be written: {error}") from None


def read_tree(data: bytes) -> object:
    """The tree of a text: None, bool, int, float, str, list, or a dict of one key. Every tag and size is checked.

    Raises NotAValue on anything else.
    """
    try:
        tree = json.loads(data.decode(), parse_constant=_no_constant)
        _check(tree, 0, [MAX_NODES])
    except (ValueError, RecursionError) as error:
        raise NotAValue(f"is no value: {str(error)[:100]}") from None
    return tree


def to_tree(value: object) -> object:
    """The tree of a Python value. Raises NotAValue."""
    return _to_tree(value, 0, [MAX_NODES])


def _to_tree(value: object, depth: int, left: list[int]) -> object:
    _count(depth, left)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"f": repr(float(value))}
    if isinstance(value, complex):
        return {"c": [_to_tree(value.real, depth + 1, left), _to_tree(value.imag, depth + 1, left)]}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return {"b": value.hex()}
    if isinstance(value, list):
        return [_to_tree(item, depth + 1, left) for item in value]
    if isinstance(value, (tuple, set, frozenset)):
        tag = next(tag for tag, kind in _CONTAINERS.items() if isinstance(value, kind))
        return {tag: [_to_tree(item, depth + 1, left) for item in value]}
    if isinstance(value, dict):
        pairs = [[_to_tree(key, depth + 1, left), _to_tree(item, depth + 1, left)] for key, item in value.items()]
        return {"d": pairs}
    raise NotAValue(f"is a {type(value).__name__}, which is no plain value")


def from_tree(tree: object) -> object:
    """The Python value of a checked tree. Raises NotAValue where a set or a key cannot be hashed."""
    if isinstance(tree, list):
        return [from_tree(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, body),) = tree.items()
    if tag == "f":
        return float(body)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "c":
        real, imaginary = (from_tree(part) for part in body)
        return complex(real, imaginary)  # type: ignore[arg-type]
    try:
        if tag == "d":
            return {from_tree(key): from_tree(item) for key, item in body}
        return _CONTAINERS[tag](from_tree(item) for item in body)
    except TypeError as error:
        raise NotAValue(f"cannot be built: {error}") from None


def _check(tree: object, depth: int, left: list[int]) -> None:
    _count(depth, left)
    if isinstance(tree, list):
        for item in tree:
            _check(item, depth + 1, left)
    elif isinstance(tree, dict):
        _check_tagged(tree, depth, left)
    elif isinstance(tree, float) and not math.isfinite(tree):
        raise NotAValue("a number is too large")


def _check_tagged(tree: dict, depth: int, left: list[int]) -> None:
    if len(tree) != 1:
        raise NotAValue("an object has not exactly one tag")
    ((tag, body),) = tree.items()
    if tag == "f":
        sound = body in ("nan", "inf", "-inf")
    elif tag == "b":
        sound = isinstance(body, str) and len(body) % 2 == 0 and not set(body) - set("0123456789abcdef")
    elif tag == "c":
        sound = isinstance(body, list) and len(body) == 2 and all(_is_real(part) for part in body)
    elif tag == "d":
        sound = isinstance(body, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in body)
    else:
        sound = tag in _CONTAINERS and isinstance(body, list)
    if not sound:
        raise NotAValue("an object has an unknown tag or the wrong content")
    if isinstance(body, list):
        for item in body:
            _check(item, depth + 1, left)


def _is_real(part: object) -> bool:
    return (isinstance(part, (int, float)) and not isinstance(part, bool)) or part in [{"f": "nan"}, {"f": "inf"}, {"f": "-inf"}]


def _count(depth: int, left: list[int]) -> None:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        raise NotAValue(f"is nested more than {MAX_DEPTH} deep or holds more than {MAX_NODES} values")


def _no_constant(name: str) -> object:
    raise NotAValue(f"{name} is no number here")
