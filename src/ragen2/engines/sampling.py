"""Drawing tokens: every row from its own stream of uniforms, by inverting the cumulative distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ragen2.errors import NonFiniteLoss

BLOCK = 64
"""Uniforms drawn ahead for a row."""


class RowUniforms:
    """One stream of uniforms in [0, 1) a row; the n-th draw of row r depends on `seeds_R[r]` and n alone."""

    def __init__(self, seeds_R: Sequence[int]) -> None:
        self._generators = [np.random.Generator(np.random.Philox(int(seed))) for seed in seeds_R]
        self._block_RB = np.empty((len(seeds_R), BLOCK))
        self._used_R = np.full(len(seeds_R), BLOCK)

    def draw(self, rows_A: np.ndarray) -> np.ndarray:
        """The next uniform of each of these rows."""
        for row in rows_A[self._used_R[rows_A] == BLOCK]:
            self._block_RB[row] = self._generators[row].random(BLOCK)
            self._used_R[row] = 0
        drawn_A = self._block_RB[rows_A, self._used_R[rows_A]]
        self._used_R[rows_A] += 1
        return drawn_A


def sample_tokens(logits_AV: Tensor, uniforms_A: np.ndarray | None, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """One token id (int32) a row and its log-probability (float32, nats) at `temperature`.

    Temperature 0, where `uniforms_A` may be None, takes the likeliest token and gives its log-probability at temperature 1.
    A token of probability 0 is never drawn. Raises NonFiniteLoss when the logits are NaN or infinite.
    """
    logits = logits_AV.to(torch.promote_types(logits_AV.dtype, torch.float32))
    logprobs = (logits / temperature if temperature > 0 else logits).log_softmax(-1)
    if temperature > 0:
        assert uniforms_A is not None
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
        total = cumulative[:, -1:]
        uniforms = torch.from_numpy(uniforms_A).to(total.device)[:, None]
        # Strictly below the total, so that an entry above it exists; the first such entry has a positive probability.
        target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
        ids = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    else:
        ids = logprobs.argmax(-1, keepdim=True)
    both = torch.cat([ids.double(), logprobs.gather(-1, ids).double()], -1).cpu().numpy()
    if not np.isfinite(both[:, 1]).all():
        raise NonFiniteLoss(
            f"the model's logits are NaN or infinite in {int((~np.isfinite(both[:, 1])).sum())} of {len(both)} rows: "
            "its weights or activations have overflowed. Go back to an earlier checkpoint, with a lower learning rate."
        )
    return both[:, 0].astype(np.int32), both[:, 1].astype(np.float32)
