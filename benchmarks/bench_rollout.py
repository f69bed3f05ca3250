"""Multi-turn rollouts: ragen2's engine against Hugging Face `generate` called afresh on the whole padded conversation each turn.

Same random petri-sized Llama, same prompts, same number of generated tokens in every turn of every row (scripted lengths: no
token ends a reply, each row stops at its own length). Prints both times and the ratio.

    python benchmarks/bench_rollout.py [--threads 2] [--dtype float32] [--profile]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ragen2.engines.base import SamplingConfig
from ragen2.engines.hf import HFEngine
from ragen2.trajectory import Ids, as_ids

GROUPS, MEMBERS, TURNS, PROMPT, OBSERVATION, LONGEST = 8, 16, 5, 200, 40, 64


def petri(vocabulary: int, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    model: Any = LlamaForCausalLM(config)
    return model.to(dtype).eval()


class Script:
    """Prompts, the length of every reply and the observation after it, drawn once."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.prompts = [as_ids(rng.integers(2, vocabulary, n)) for n in rng.integers(PROMPT - 10, PROMPT + 11, GROUPS)]
        rows = GROUPS * MEMBERS
        self.reply_RT = rng.integers(8, LONGEST + 1, (rows, TURNS))
        self.reply_RT[0] = LONGEST
        self.observations = [[as_ids(rng.integers(2, vocabulary, OBSERVATION)) for _ in range(TURNS)] for _ in range(rows)]


def ours(model: Any, script: Script) -> int:
    """Every row continues on its own; the engine's per-row limit takes the place of the end token."""
    engine = HFEngine(model, ())
    rows = GROUPS * MEMBERS
    session = engine.open(script.prompts, MEMBERS, SamplingConfig(turn_tokens=LONGEST, context_tokens=2048), list(range(rows)))
    context = [script.prompts[row // MEMBERS] for row in range(rows)]
    turn_R, generated = np.zeros(rows, dtype=int), 0
    session.turn_limit_R[:] = script.reply_RT[:, 0]
    while replies := session.advance():
        for reply in replies:
            row = reply.row
            assert len(reply.ids) == script.reply_RT[row, turn_R[row]]
            generated += len(reply.ids)
            context[row] = np.concatenate([context[row], reply.ids, script.observations[row][turn_R[row]]])
            turn_R[row] += 1
            if turn_R[row] == TURNS:
                session.close(row)
            else:
                session.turn_limit_R[row] = script.reply_RT[row, turn_R[row]]
                session.resume(row, context[row])
    return generated


@torch.no_grad()
def afresh(model: Any, script: Script) -> int:
    """All rows turn by turn, left padded; a row's reply is cut at its scripted length, as an end token would."""
    rows = GROUPS * MEMBERS
    context: list[Ids] = [script.prompts[row // MEMBERS] for row in range(rows)]
    generated = 0
    for turn in range(TURNS):
        width = max(len(ids) for ids in context)
        ids_RT, mask_RT = np.zeros((rows, width), dtype=np.int64), np.zeros((rows, width), dtype=np.int64)
        for row, ids in enumerate(context):
            ids_RT[row, width - len(ids) :], mask_RT[row, width - len(ids) :] = ids, 1
        out = model.generate(
            input_ids=torch.from_numpy(ids_RT),
            attention_mask=torch.from_numpy(mask_RT),
            do_sample=True,
            top_k=0,
            eos_token_id=None,
            pad_token_id=0,
            max_new_tokens=int(script.reply_RT[:, turn].max()),
        )[:, width:].numpy()
        for row in range(rows):
            reply = as_ids(out[row, : script.reply_RT[row, turn]])
            generated += len(reply)
            context[row] = np.concatenate([context[row], reply, script.observations[row][turn]])
    return generated


def timed(run: Callable[[Any, Script], int], model: Any, script: Script, repeats: int) -> tuple[float, float, int]:
    """Best of `repeats` wall times and processor times, in seconds, and the tokens generated.

    Processor time tells more on a machine that others use (with one thread: with more, waiting threads spin).
    """
    wall, processor, tokens = float("inf"), float("inf"), 0
    for _ in range(repeats):
        start, start_processor = time.perf_counter(), time.process_time()
        tokens = run(model, script)
        wall = min(wall, time.perf_counter() - start)
        processor = min(processor, time.process_time() - start_processor)
    return wall, processor, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="where the time of ours goes, instead of the comparison")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    script = Script(options.vocabulary, seed=0)
    for name in options.dtype:
        model = petri(options.vocabulary, getattr(torch, name))
        ours(model, Script(options.vocabulary, seed=1)) if not options.profile else None
        if options.profile:
            profile(model, script)
            continue
        mine, mine_processor, tokens = timed(ours, model, script, options.repeats)
        theirs, theirs_processor, same_tokens = timed(afresh, model, script, options.repeats)
        assert tokens == same_tokens
        print(
            f"{name}, {options.threads} threads, {GROUPS} x {MEMBERS} rows, {TURNS} turns, {tokens} tokens\n"
            f"  ragen2          {mine:7.2f} s  {tokens / mine:7.0f} tok/s  processor {mine_processor:7.2f} s\n"
            f"  generate afresh {theirs:7.2f} s  {tokens / theirs:7.0f} tok/s  processor {theirs_processor:7.2f} s\n"
            f"  ratio           {theirs / mine:7.2f}                   processor {theirs_processor / mine_processor:7.2f}"
        )


def profile(model: Any, script: Script) -> None:
    """Time by operator, and by Python function."""
    import cProfile
    import pstats

    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    ours(model, script)
    with torch_profile(activities=[ProfilerActivity.CPU]) as operators:
        ours(model, script)
    print(operators.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=40))
    functions = cProfile.Profile()
    functions.runcall(ours, model, script)
    pstats.Stats(functions).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
