"""Rows that share prefixes: each prefix runs once, its rows attend to it, and the result equals running every whole row.

The one mechanism under rollouts, the training update and cross-scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ragen2.engines.attention import bare, decoder_of, run_causal_model, run_decoder, unsupported
from ragen2.engines.shared_rows import PrefixKV, SharedRows, compute_prefix, padded, suffix_call
from ragen2.errors import ConfigError, TokenMismatch
from ragen2.trajectory import Ids, as_ids

__all__ = [
    "PrefixKV",
    "SharedRows",
    "TokenScores",
    "check_model",
    "compute_prefix",
    "one_earlier",
    "suffix_hidden",
    "token_logprobs",
    "without_last",
]

LOGIT_ELEMENTS = 1 << 25
"""Most logits held at once (128 MiB of float32)."""


@dataclass(frozen=True)
class TokenScores:
    """`logprobs_BT[b, t]` = log p(suffix[b][t] | what precedes it), in nats; 0 where not selected. `entropy_BT` likewise."""

    logprobs_BT: Tensor
    entropy_BT: Tensor | None


def suffix_hidden(model: nn.Module, rows: SharedRows, *, prefix: PrefixKV | None = None) -> tuple[Tensor, np.ndarray]:
    """Hidden states after the final norm of every suffix token, [B, T, D] right padded, and the suffix lengths [B].

    `model` is a causal model or its bare backbone, with or without peft. Differentiable through suffixes and prefixes;
    works under autocast. Hidden states of padding are finite and mean nothing. `prefix` is what `compute_prefix` gave for
    the same prefixes. Raises ModelError for a model that cannot share prefixes.
    """
    check_model(model)
    state, ids_BT, positions_BT, lengths_B = suffix_call(model, rows, prefix)
    return run_decoder(decoder_of(model), ids_BT, positions_BT, state), lengths_B


def token_logprobs(
    model: nn.Module,
    rows: SharedRows,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    select: Tensor | np.ndarray | None = None,
    prefix: PrefixKV | None = None,
) -> TokenScores:
    """Log-probability of every suffix token given its prefix and the suffix before it, at `temperature`.

    `select` [B, T] (bool) names the positions wanted, all real tokens by default: only there are logits computed, elsewhere
    the result is 0. T is the longest suffix. `entropy` adds the entropy (nats, whole vocabulary) of the distribution at
    those positions. Both are float32 or wider and differentiable when grad is on. `prefix` is what `compute_prefix` gave for
    the prefixes without their last token. Raises ConfigError for a temperature of 0 or less, TokenMismatch for an empty
    prefix or a selection of another shape, ModelError for a model that cannot share prefixes.
    """
    if temperature <= 0:
        raise ConfigError(f"temperature {temperature} has no log-probabilities: it must be positive")
    if any(len(ids) == 0 for ids in rows.prefixes):
        raise TokenMismatch("an empty prefix predicts nothing: every prefix needs at least one token")
    plain_head = check_model(model)
    shifted, select_BT = one_earlier(rows), _selection(rows, select)
    state, ids_BT, positions_BT, _ = suffix_call(model, shifted, prefix)
    where = torch.from_numpy(np.flatnonzero(select_BT)).to(ids_BT.device)
    targets = padded(rows.suffixes, ids_BT.shape[1], ids_BT.device).flatten()[where]
    if plain_head:
        hidden = run_decoder(decoder_of(model), ids_BT, positions_BT, state).flatten(0, 1)[where]
        values, entropies = _score(hidden, targets, bare(model).get_output_embeddings(), temperature, entropy)
    else:
        logits = run_causal_model(model, ids_BT, positions_BT, state).flatten(0, 1)[where]
        values, entropies = _score(logits, targets, _same, temperature, entropy)
    size = ids_BT.numel()
    flat = values.new_zeros(size).index_put((where,), values)
    flat_entropy = None if entropies is None else entropies.new_zeros(size).index_put((where,), entropies)
    return TokenScores(flat.view_as(ids_BT), None if flat_entropy is None else flat_entropy.view_as(ids_BT))


def without_last(prefixes: Sequence[Ids]) -> list[Ids]:
    """The prefixes `token_logprobs` runs once: the last token of each moves into the rows, where it predicts their first."""
    return [ids[:-1] for ids in prefixes]


def one_earlier(rows: SharedRows) -> SharedRows:
    """The rows moved one token back: position t of a suffix then holds what precedes its token t, and so predicts it."""
    lasts = [ids[-1:] for ids in rows.prefixes for _ in range(rows.rows_per_prefix)]
    moved = [np.concatenate([last, ids[:-1]]) if len(ids) else ids for last, ids in zip(lasts, rows.suffixes, strict=True)]
    return SharedRows(without_last(rows.prefixes), moved)


def _selection(rows: SharedRows, select: Tensor | np.ndarray | None) -> np.ndarray:
    lengths_B = np.array([len(ids) for ids in rows.suffixes])
    real_BT = np.arange(max(1, int(lengths_B.max(initial=0)))) < lengths_B[:, None]
    if select is None:
        return real_BT
    wanted = select.detach().cpu().numpy() if isinstance(select, Tensor) else np.asarray(select)
    if wanted.shape != real_BT.shape or (wanted.astype(bool) & ~real_BT).any():
        raise TokenMismatch(f"a selection of shape {wanted.shape} for suffixes of {real_BT.shape}, or one that selects padding")
    return wanted.astype(bool)


def _same(logits: Tensor) -> Tensor:
    return logits


def _score(inputs_ND: Tensor, targets_N: Tensor, head: Any, temperature: float, entropy: bool) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities and entropies in chunks, recomputed in the backward pass when one chunk does not hold all."""

    def chunk(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(inputs)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
        normaliser = logits.logsumexp(-1)
        logprobs = logits.gather(-1, targets[:, None]).squeeze(-1) - normaliser
        spread = normaliser - ((logits - normaliser[:, None]).exp() * logits).sum(-1) if entropy else logprobs.detach()
        return logprobs, spread

    vocabulary = getattr(head, "out_features", inputs_ND.shape[-1])
    size = max(1, LOGIT_ELEMENTS // vocabulary)
    if len(inputs_ND) <= size:
        logprobs, spread = chunk(inputs_ND, targets_N)
        return logprobs, spread if entropy else None
    parts = [
        checkpoint(chunk, inputs, targets, use_reentrant=False)
        for inputs, targets in zip(inputs_ND.split(size), targets_N.split(size), strict=True)
    ]
    joined = [torch.cat(list(values)) for values in zip(*parts, strict=True)]
    return joined[0], joined[1] if entropy else None


_checked: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def check_model(model: nn.Module) -> bool:
    """Compare shared rows with whole rows on a small example, once a model object.

    Returns whether the logits are the output matrix times the hidden states (else `token_logprobs` takes the whole model's
    forward, which is slower); False for a bare backbone. Raises ModelError when the hidden states differ.
    """
    if model not in _checked:
        trained = [module for module in model.modules() if module.training]
        model.eval()
        try:
            with torch.no_grad(), torch.autocast(next(model.parameters()).device.type, enabled=False):
                _checked[model] = _compare(model)
        finally:
            for module in trained:
                module.training = True
    return _checked[model]


def _compare(model: nn.Module) -> bool:
    base, decoder = bare(model), decoder_of(model)
    draws = np.random.default_rng(0).integers(0, decoder.config.vocab_size, 16)
    prefix, suffixes = as_ids(draws[:7]), [as_ids(draws[a:b]) for a, b in ((7, 11), (11, 13), (13, 16))]
    state, ids_BT, positions_BT, lengths_B = suffix_call(model, SharedRows([prefix], suffixes), None)
    hidden_BTD = run_decoder(decoder, ids_BT, positions_BT, state)
    head = base.get_output_embeddings()
    plain_head = head is not None
    for row, (suffix, length) in enumerate(zip(suffixes, lengths_B, strict=True)):
        whole = padded([np.concatenate([prefix, suffix])], len(prefix) + len(suffix), hidden_BTD.device)
        expected = decoder(input_ids=whole, use_cache=False).last_hidden_state[0, len(prefix) :]
        if not _close(hidden_BTD[row, :length], expected):
            gap = float((hidden_BTD[row, :length] - expected).abs().max())
            raise unsupported(type(base).__name__, f"its hidden states differ by {gap:.2g} from those of the plain forward")
        if plain_head:
            logits = base(input_ids=whole, use_cache=False).logits[0, len(prefix) :]
            plain_head = _close(head(expected).to(logits.dtype), logits)
    return plain_head


def _close(found: Tensor, expected: Tensor) -> bool:
    """Equal up to a rounding that layers of this precision accumulate."""
    if not torch.isfinite(expected).all():
        return True
    tolerance = 1e-4 if found.dtype in (torch.float32, torch.float64) else 3e-2
    return bool((found - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max())))
