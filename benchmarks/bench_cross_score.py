"""Cross-scoring: ragen2's engine against running context and reasoning afresh for every pair, logits only on the reasoning.

    python benchmarks/bench_cross_score.py [--model petri|smollm2|both] [--threads 1] [--rounds 5] [--memory]

8 Sokoban prompts of about 300 tokens and 128 reasonings of 45 to 75, sampled by the model itself. The petri has random weights.
Both ways run in turn in one process, so that the machine's noise hits both; the ratios are medians over rounds, of processor time
and of wall time. The plain way runs 16 rows of similar length together; with --share 8 (the default for smollm2) it runs another
eighth of the pairs each round and its time is scaled by tokens. --memory adds 64 contexts x 64 reasonings, and the growth of
the process.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import ragen2
from ragen2.diagnostics import cross_score
from ragen2.engines.base import SamplingConfig
from ragen2.engines.hf import HFEngine
from ragen2.engines.loading import load_model
from ragen2.prompting.chat_format import ChatFormat
from ragen2.prompting.messages import system_text, turn_text
from ragen2.trajectory import Ids, as_ids, common_prefix

CONTEXTS, EACH, SHORTEST, LONGEST, PLAIN_ROWS = 8, 16, 45, 75, 16
EXACT = 16
"""Pairs that the plain way also runs in float64, at the end."""


@dataclass(frozen=True)
class Work:
    """A model and what it scores."""

    model: Any
    contexts: list[Ids]
    reasonings: list[Ids]

    def pairs(self) -> list[tuple[int, int]]:
        """(context, reasoning), by the length of the reasoning."""
        by_length = sorted(range(len(self.reasonings)), key=lambda s: len(self.reasonings[s]))
        return [(c, s) for s in by_length for c in range(len(self.contexts))]

    def fresh_tokens(self, pairs: list[tuple[int, int]]) -> int:
        """Tokens of whole rows."""
        return sum(len(self.contexts[c]) + len(self.reasonings[s]) for c, s in pairs)

    def shared_tokens(self, common: int = 0) -> int:
        """Tokens when each context runs once (their first `common` tokens once for all) and each pair's reasoning once."""
        own = sum(len(ids) - common for ids in self.contexts) + common
        return own + len(self.contexts) * sum(len(ids) for ids in self.reasonings)

    def operations(self) -> tuple[float, float]:
        """Multiplications and additions of matrix products and causal attention: whole rows, and shared contexts."""
        config, base = self.model.config, self.model.model
        linear = 2.0 * sum(p.numel() for p in base.layers.parameters())
        head = 2.0 * config.vocab_size * config.hidden_size
        pair = 4.0 * config.num_attention_heads * config.head_dim * config.num_hidden_layers
        context_N, reasoning_S = (np.array([len(ids) for ids in group]) for group in (self.contexts, self.reasonings))
        row_SN = reasoning_S[:, None] + context_N
        predicted = len(context_N) * reasoning_S.sum() * head
        whole = (row_SN * linear + pair * row_SN**2 / 2).sum() + predicted
        once = (context_N * linear + pair * context_N**2 / 2).sum()
        looks_back_SN = reasoning_S[:, None] * (context_N + reasoning_S[:, None] / 2)
        return whole, once + len(context_N) * reasoning_S.sum() * linear + (pair * looks_back_SN).sum() + predicted


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["petri", "smollm2", "both"], default="petri")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=int, default=0, help="the plain way runs one pair in SHARE each round")
    parser.add_argument("--memory", action="store_true", help="also 64 x 64, and how much the process grows")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in ("petri", "smollm2") if args.model == "both" else (args.model,):
        model, tokenizer = load(name)
        print(f"{name}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {args.threads} threads, float32")
        if args.memory:
            memory(model, tokenizer)
        compare(work_of(model, tokenizer), args.rounds, args.share or (8 if name == "smollm2" else 1))


def load(name: str) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer."""
    if name == "smollm2":
        from ragen2.training.smollm2 import smollm2_folder

        loaded = load_model(str(smollm2_folder()))
        return loaded.model, loaded.tokenizer
    from ragen2.rollout.config import RolloutConfig
    from ragen2.training.petri import PetriConfig, new_petri, petri_tokenizer
    from ragen2.training.settings import EnvironmentConfig

    tokenizer = petri_tokenizer([EnvironmentConfig("sokoban")], RolloutConfig(), PetriConfig().vocabulary)
    return new_petri(PetriConfig(), tokenizer, 0), tokenizer


def prompts(tokenizer: Any, count: int) -> list[Ids]:
    """First contexts of different Sokoban levels."""
    chat = ChatFormat(tokenizer, think=True)
    env = ragen2.make("sokoban", size=8)
    found: dict[bytes, Ids] = {}
    seed = 0
    while len(found) < count:
        system = system_text(env.instructions, multi_action=env.multi_action, actions_per_turn=2, word_limit=60)
        ids = chat.initial_ids(system, turn_text(1, 5, 10, env.reset(seed, 0).text))
        found[ids.tobytes()] = ids
        seed += 1
    return list(found.values())


def work_of(model: Any, tokenizer: Any) -> Work:
    """Prompts, and reasonings the model samples after them, cut to lengths drawn at random."""
    contexts = prompts(tokenizer, CONTEXTS)
    rows = CONTEXTS * EACH
    session = HFEngine(model, ()).open(contexts, EACH, SamplingConfig(turn_tokens=LONGEST, context_tokens=4096), range(rows))
    replies: dict[int, Ids] = {}
    while len(replies) < rows:
        replies |= {reply.row: reply.ids for reply in session.advance()}
    lengths = np.random.default_rng(0).integers(SHORTEST, LONGEST + 1, rows)
    return Work(model, contexts, [replies[row][: lengths[row]] for row in range(rows)])


@torch.no_grad()
def plain(work: Work, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Every pair's whole row through the model, the output matrix only where a reasoning token is predicted."""
    sums: list[float] = []
    for at in range(0, len(pairs), PLAIN_ROWS):
        some = pairs[at : at + PLAIN_ROWS]
        rows = [np.concatenate([work.contexts[c], work.reasonings[s]]) for c, s in some]
        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
        # Right padding needs no mask: attention is causal.
        hidden = work.model.model(input_ids=torch.from_numpy(ids), use_cache=False).last_hidden_state
        spans = [(len(work.contexts[c]) - 1, len(row) - 1) for (c, _), row in zip(some, rows, strict=True)]
        states = torch.cat([hidden[number, begin:end] for number, (begin, end) in enumerate(spans)])
        targets = torch.from_numpy(np.concatenate([work.reasonings[s] for _, s in some]).astype(np.int64))
        logits = work.model.lm_head(states)
        # Not log_softmax or cross_entropy: their sum over a large vocabulary is 1e-5 nats a token off where it is peaked.
        logprobs = logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(-1)
        sums += [float(part.double().sum()) for part in logprobs.split([end - begin for begin, end in spans])]
    return np.array(sums)


def ours(work: Work) -> np.ndarray:
    """The same sums for all pairs, [reasonings, contexts]."""
    return cross_score(HFEngine(work.model, ()), work.contexts, work.reasonings)


def compare(work: Work, rounds: int, share: int) -> None:
    """Both ways in turn; print the ratios, the limits and the largest difference."""
    pairs, sums_SN = work.pairs(), np.empty(0)
    fresh, ratios, plain_of = work.fresh_tokens(pairs), [], dict[tuple[int, int], float]()
    spent: list[tuple[float, float]] = []
    plain(work, pairs[:PLAIN_ROWS])
    for number in range(rounds):
        # Rows of one batch keep their neighbours in length.
        some = [pair for at in range(0, len(pairs), PLAIN_ROWS) for pair in pairs[at : at + PLAIN_ROWS]
                if at // PLAIN_ROWS % share == number % share]  # fmt: skip
        scale = fresh / work.fresh_tokens(some)
        order = [lambda some=some: plain(work, some), lambda: ours(work)]
        timed = [timing(step) for step in (order if number % 2 == 0 else order[::-1])]
        (sums, *slow), (sums_SN, *fast) = timed if number % 2 == 0 else timed[::-1]
        ratios.append([scale * a / b for a, b in zip(slow, fast, strict=True)])
        spent.append((scale * slow[0], fast[0]))
        plain_of |= dict(zip(some, sums.tolist(), strict=True))
        print(f"  round {number + 1}: {ratios[-1][0]:.2f} times by processor time, {ratios[-1][1]:.2f} by the clock", flush=True)
    median = np.median(ratios, axis=0)
    print(f"  processor seconds: plain {np.median([a for a, _ in spent]):.2f}, ours {np.median([b for _, b in spent]):.2f}")
    print(f"  ours is {median[0]:.2f} times faster by processor time, {median[1]:.2f} by the clock")
    limits(work, median[0])
    off = _gap(plain_of, sums_SN)
    print(f"  largest difference {off:.1e} nats a sequence, in {len(plain_of)} pairs that the plain way ran")
    from_float64(work, plain_of, sums_SN)


def _gap(values: dict[tuple[int, int], float], sums_SN: np.ndarray) -> float:
    """Largest difference over the pairs (context, reasoning) of `values`."""
    return max(abs(value - sums_SN[s, c]) for (c, s), value in values.items())


def limits(work: Work, ratio: float) -> None:
    """Print what the lengths allow, and how near that is."""
    common = work.contexts[0]
    for ids in work.contexts:
        common = common[: common_prefix(common, ids)]
    fresh = work.fresh_tokens(work.pairs())
    context, reasoning = (np.mean([len(ids) for ids in group]) for group in (work.contexts, work.reasonings))
    print(f"  {len(work.contexts)} contexts of {context:.0f} tokens, {len(common)} of them in common")
    print(f"  {len(work.reasonings)} reasonings of {reasoning:.0f} tokens")
    limit = fresh / work.shared_tokens()
    print(f"  limit by tokens: {limit:.2f} with each context once; {ratio / limit:.0%} of it reached")
    print(f"  limit by tokens: {fresh / work.shared_tokens(len(common)):.2f} with the contexts' common part once")
    whole, shared = work.operations()
    print(f"  limit by operations, attention and output matrix too: {whole / shared:.2f}; {ratio * shared / whole:.0%} of it")


def from_float64(work: Work, plain_of: dict[tuple[int, int], float], sums_SN: np.ndarray) -> None:
    """Print how far both ways are from the same model in float64, which the model stays."""
    work.model.double()
    truth_SN = ours(work)
    some = list(plain_of)[:: max(1, len(plain_of) // EXACT)]
    check = _gap(dict(zip(some, plain(work, some).tolist(), strict=True)), truth_SN)
    print(f"  float64: both ways agree to {check:.1e} nats a sequence in {len(some)} pairs")
    off = float(np.abs(sums_SN - truth_SN).max())
    plain_off = _gap(plain_of, truth_SN)
    print(f"  from float64, largest: plain {plain_off:.1e} in {len(plain_of)} pairs, ours {off:.1e} in {truth_SN.size}")


def timing(step: Callable[[], np.ndarray]) -> tuple[np.ndarray, float, float]:
    """A result, its processor seconds and its wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = step()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def memory(model: Any, tokenizer: Any) -> None:
    """64 contexts x 64 reasonings of 60 random tokens."""
    rng = np.random.default_rng(1)
    contexts = prompts(tokenizer, 64)
    reasonings = [as_ids(rng.integers(0, len(tokenizer), 60)) for _ in range(64)]
    work = Work(model, contexts, reasonings)
    cross_score(HFEngine(model, ()), contexts[:1], reasonings[:1])
    with growth() as grown:
        _, cpu, _ = timing(lambda: ours(work))
    print(f"  64 x 64: {cpu:.1f} processor seconds, the process grew by at most {max(grown) / 2**20:.0f} MiB", flush=True)


@contextmanager
def growth() -> Iterator[list[int]]:
    """Bytes by which the resident memory exceeds that at the start, looked at every 10 ms (Linux)."""
    page, done, grown = os.sysconf("SC_PAGE_SIZE"), threading.Event(), [0]

    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * page

    before = resident()

    def watch() -> None:
        while not done.wait(0.01):
            grown.append(resident() - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield grown
    finally:
        done.set()
        watcher.join()


if __name__ == "__main__":
    main()
