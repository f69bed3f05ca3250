"""pass@k without bias: the chance that k of n answers, drawn without replacement, hold a right one (arXiv 2107.03374)."""

from __future__ import annotations

import math

from ragen2.errors import ConfigError


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k) for `n` answers of which `c` are right.

    Raises ConfigError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ConfigError(f"pass@k of n={n}, c={c}, k={k}: it needs 0 <= c <= n and 1 <= k <= n. Sample at least k answers.")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
