"""Lends the global random generators to code of other packages that draws from them, and takes them back unchanged."""

from __future__ import annotations

import contextlib
import io
import random
import threading
from collections.abc import Iterator

import numpy as np

_lock = threading.Lock()


class GlobalRandom:
    """A stream of chance for code that draws from `random` and `numpy.random` themselves.

    Within `lent()` the global generators continue this stream; afterwards they are as they were before. What the code prints
    meanwhile is dropped. One thread at a time.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._python = random.Random(int(rng.integers(2**63))).getstate()
        self._numpy = np.random.RandomState(int(rng.integers(2**32))).get_state()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """A context in which the global generators are this stream."""
        with _lock, contextlib.redirect_stdout(io.StringIO()):
            python, numpy = random.getstate(), np.random.get_state()
            random.setstate(self._python)
            np.random.set_state(self._numpy)
            try:
                yield
            finally:
                self._python, self._numpy = random.getstate(), np.random.get_state()
                random.setstate(python)
                np.random.set_state(numpy)
