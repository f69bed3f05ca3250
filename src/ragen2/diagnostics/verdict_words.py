"""What a verdict means and what to try, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

MEANING = {
    "healthy": "the run learned, and none of the signals that go with collapse has turned for good",
    "template collapse": "replies keep their form, but what is reasoned hardly depends on the prompt any more",
    "format collapse": "replies no longer keep the form the format asks for, so actions are lost",
    "entropy collapse": "the policy has become deterministic and no longer explores",
    "never learned": "success never rose clearly above where it started",
    "degrading": "the run is going wrong but has not collapsed yet",
    "undecided": "there is not enough to go by",
}

WHAT_TO_TRY = {
    "healthy": ("go on training while success still rises; compare with a second seed before drawing conclusions",),
    "template collapse": (
        "filter prompts by reward variance (filter.mode=top_p), so that updates carry task signal",
        "go back to a checkpoint from before the onset and lower the learning rate or the regularisers",
        "raise the variety of prompts an iteration",
    ),
    "format collapse": (
        "go back to a checkpoint from before the onset; lower the learning rate or the number of mini-batches",
        "look at the share of truncated replies: raise the token budget of a turn when it grows",
        "keep or raise the format penalty; filter prompts by reward variance",
    ),
    "entropy collapse": (
        "raise the upper clip (clip-higher) or add a small entropy bonus",
        "sample at temperature 1 and drop prompts that all trajectories solve or fail",
    ),
    "never learned": (
        "check that some trajectories succeed at the start: warm up longer or take easier levels",
        "look at the failures and at the share of replies that parse before changing the algorithm",
        "use more trajectories a prompt, so that groups have returns that differ",
    ),
    "degrading": (
        "go back to the checkpoint with the best validation success; lower the learning rate",
        "watch valid thinking and truncation from here on: format collapse often follows",
    ),
    "undecided": (
        "train longer, validate more often, or log the missing columns",
        "name columns that are there under other names: --map valid_think=COLUMN",
    ),
}

TRUNCATED = "raise the token budget of a reply, or shorten what is asked for: many replies are cut before they end"


def meaning(verdict: str, also: Sequence[str], success_gone: bool) -> str:
    """The meaning of a verdict beside what else was found, and where hardly any success is left."""
    if verdict == "healthy" and also:
        return f"the task is solved to the end, yet there is {' and '.join(f'{name} ({MEANING[name]})' for name in also)}"
    if verdict == "degrading" and success_gone:
        return "success is gone, by none of the collapses that the logged signals can show"
    return MEANING[verdict]


def what_to_try(verdict: str, also: Sequence[str]) -> tuple[str, ...]:
    """Advice for a verdict; for a healthy run in which something was found, that of what was found."""
    return WHAT_TO_TRY[also[0]] if verdict == "healthy" and also else WHAT_TO_TRY[verdict]
