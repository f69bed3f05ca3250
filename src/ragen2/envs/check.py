"""`check_env`: does an environment keep the contract that training relies on?"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.envs.base import StepResult, TextEnv
from ragen2.envs.registry import make
from ragen2.envs.splits import SPLITS, split_of

HOSTILE_ACTIONS = (
    "",
    " ",
    "||",
    "Up || Down",
    "\x00",
    "Up\x00",
    "\x1b[31mUp",
    "\u202eUp",
    "\ud800",
    "٣ + ٤",
    "9**9**9",
    "().__class__.__base__.__subclasses__()",
    "<answer>Up</answer>",
    "((((" * 2000,
    "9" * 6000,
    "Up" * 500_000,
)
"""Answers that no environment may crash on or pay for: empty, separators, control characters, a lone surrogate, digits of
other scripts, code, deep nesting, a number of thousands of digits, a megabyte."""


@dataclass(frozen=True)
class Finding:
    """One broken rule: its name and what was seen."""

    name: str
    message: str


@dataclass(frozen=True)
class CheckReport:
    """Outcome of `check_env`: `findings` are broken rules, `skipped` the rules that could not be tested and why."""

    environment: str
    findings: tuple[Finding, ...]
    skipped: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        head = f"{self.environment}: {'ok' if self.ok else f'{len(self.findings)} broken rules'}"
        lines = [f"  {f.name}: {f.message}" for f in self.findings] + [f"  skipped {f.name}: {f.message}" for f in self.skipped]
        return "\n".join([head, *lines])


def check_env(
    env: TextEnv,
    seeds: Sequence[int] = tuple(range(8)),
    steps: int = 20,
    *,
    make_env: Callable[[str], TextEnv] | None = None,
    actions: Sequence[str] = (),
) -> CheckReport:
    """Test the contract of `TextEnv` on some level seeds, `steps` actions an episode at most. Raises nothing.

    `make_env(split)` builds a fresh environment of the same configuration; environments from `ragen2.make` need none. `actions`
    are tried beside those of `demonstrate`, for environments that have no demonstrations.
    """
    check = _Check(env, tuple(seeds), steps, make_env, tuple(actions))
    rules: tuple[Callable[[], None], ...] = (
        check.prompt_is_shared_by_a_group,
        check.trajectories_repeat,
        check.step_results_are_sound,
        check.hostile_actions_are_harmless,
        check.splits_are_disjoint,
        check.demonstrations_are_legal,
    )
    for rule in rules:
        try:
            rule()
        except Exception as error:  # foreign code may raise anything; what it raised is the finding
            check.report(rule.__name__, f"raised {type(error).__name__}: {error}")
    return CheckReport(type(env).__name__, tuple(check.findings), tuple(check.skipped))


class _Check:
    """The rules, one method each, and what they found."""

    def __init__(
        self,
        env: TextEnv,
        seeds: tuple[int, ...],
        steps: int,
        make_env: Callable[[str], TextEnv] | None,
        actions: tuple[str, ...],
    ) -> None:
        self.env, self.seeds, self.steps, self.actions = env, seeds, steps, actions
        self.make_env = make_env
        if make_env is None and env.made_as is not None:
            id, config = env.made_as
            self.make_env = lambda split: make(id, split, **config)
        self.findings: list[Finding] = []
        self.skipped: list[Finding] = []

    def report(self, name: str, message: str) -> None:
        """Record a broken rule, once a rule name: the first example says enough."""
        name = name.replace("_", " ")
        if all(finding.name != name for finding in self.findings):
            self.findings.append(Finding(name, message))

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append(Finding(name.replace("_", " "), reason))

    def fresh(self) -> TextEnv:
        return copy.deepcopy(self.env) if self.make_env is None else self.make_env(self.env.split)

    def prompt_is_shared_by_a_group(self) -> None:
        """Same level seed: same instructions, first observation and content, for any noise seed, instance and order."""
        name = "prompt_is_shared_by_a_group"
        shown = {seed: self._prompt(self.env, seed, noise_seed=1) for seed in self.seeds}
        other = self.fresh()
        for seed in reversed(self.seeds):
            for instance, noise_seed in ((self.env, 1), (self.env, 2), (other, 3)):
                if self._prompt(instance, seed, noise_seed) != shown[seed]:
                    self.report(name, f"level seed {seed} shows another prompt with noise seed {noise_seed} or a fresh instance")

    def trajectories_repeat(self) -> None:
        """Same two seeds and same actions: same observations, rewards and ends."""
        for seed in self.seeds:
            played = self._play(self.env, seed, noise_seed=seed + 7)
            again = self._replay(self.fresh(), seed, seed + 7, [action for action, _ in played])
            if again != [_visible(result) for _, result in played]:
                self.report("trajectories_repeat", f"level seed {seed}: same seeds and actions gave another trajectory")

    def step_results_are_sound(self) -> None:
        """A legal flag always, a finite float reward, success at the end, and a step after the end that pays nothing."""
        name = "step_results_are_sound"
        ended = False
        for seed in self.seeds:
            played = self._play(self.env, seed, noise_seed=seed)
            for action, result in played:
                self._examine(name, action, result)
            if played and played[-1][1].done:
                ended = True
                after = self.env.step(played[-1][0])
                if not after.done or after.reward != 0:
                    self.report(name, f"a step after the end gave done={after.done}, reward={after.reward!r}; allowed: done, 0")
        if not ended:
            self.skip(name, f"no episode ended within {self.steps} actions, so what happens at the end was not seen")

    def hostile_actions_are_harmless(self) -> None:
        """No string raises, none of the hostile ones pays, an illegal one leaves the level as it was."""
        name = "hostile_actions_are_harmless"
        for seed in self.seeds[:3]:
            for action in HOSTILE_ACTIONS:
                first = self.env.reset(seed, seed)
                shown = f"{action[:24]!r} ({len(action)} characters)"
                try:
                    result = self.env.step(action)
                except Exception as error:  # the rule is that nothing is raised, so anything raised is the finding
                    self.report(name, f"action {shown} raised {type(error).__name__}: {error}")
                    continue
                self._examine(name, shown, result)
                if result.reward > 0:
                    self.report(name, f"action {shown} was paid {result.reward!r}")
                if result.info.get("legal") is False and not result.done and first.text not in result.observation.text:
                    self.report(name, f"illegal action {shown} changed the board that is shown")

    def splits_are_disjoint(self) -> None:
        """Levels of one split appear in no other, and where content decides the split, `split_of` agrees."""
        name = "splits_are_disjoint"
        if self.make_env is None:
            self.skip(name, "other splits need make_env, or an environment from ragen2.make")
            splits = {self.env.split: self.env}
        else:
            splits = {split: self.make_env(split) for split in SPLITS}
        contents = {split: {self._prompt(env, seed, 0)[2] for seed in self.seeds} for split, env in splits.items()}
        if not self.env.split_by_content:
            self.skip(name, "this configuration does not split by content")
            return
        for split, found in contents.items():
            wrong = [content for content in found if split_of(content) != split]
            if wrong:
                self.report(name, f"a {split} level has content of split {split_of(wrong[0])!r}: {wrong[0][:80]!r}")

    def demonstrations_are_legal(self) -> None:
        """Demonstrated actions, expert and random, are accepted; the reasoning is not empty."""
        name = "demonstrations_are_legal"
        for seed in self.seeds:
            for expertise in (1.0, 0.0):
                self.env.reset(seed, seed)
                try:
                    demonstration = self.env.demonstrate(np.random.default_rng(seed), expertise, 2)
                except NotImplementedError:
                    return self.skip(name, "the environment has no demonstrations")
                if not demonstration.reasoning.strip() or not 1 <= len(demonstration.actions) <= 2:
                    self.report(name, f"level seed {seed}: empty reasoning or not 1 to 2 actions: {demonstration!r}")
                for action in demonstration.actions:
                    result = self.env.step(action)
                    if result.info.get("legal") is not True:
                        self.report(name, f"level seed {seed}: demonstrated action {action!r} is not legal")
                    if result.done:
                        break

    def _examine(self, name: str, action: str, result: StepResult) -> None:
        if not isinstance(result.info.get("legal"), bool):
            self.report(name, f"info['legal'] is {result.info.get('legal')!r} after {action!r}; it must be True or False")
        if not isinstance(result.reward, float) or not math.isfinite(result.reward):
            self.report(name, f"reward is {result.reward!r} after {action!r}; it must be a finite float")
        if result.done and not isinstance(result.info.get("success"), bool):
            self.report(name, f"info['success'] is {result.info.get('success')!r} at the end; it must be True or False")

    def _prompt(self, env: TextEnv, seed: int, noise_seed: int) -> tuple[str, str, str]:
        text = env.reset(seed, noise_seed).text
        return env.instructions, text, env.content()

    def _play(self, env: TextEnv, seed: int, noise_seed: int) -> list[tuple[str, StepResult]]:
        """Demonstrated (half of them random) or given actions, until the end or the number of steps."""
        env.reset(seed, noise_seed)
        rng = np.random.default_rng(seed)
        played: list[tuple[str, StepResult]] = []
        while len(played) < self.steps:
            action = self._choose(env, rng)
            played.append((action, env.step(action)))
            if played[-1][1].done:
                break
        return played

    def _choose(self, env: TextEnv, rng: np.random.Generator) -> str:
        if self.actions and rng.random() < 0.5:
            return self.actions[int(rng.integers(len(self.actions)))]
        try:
            return env.demonstrate(rng, 0.5, 1).actions[0]
        except NotImplementedError:
            return self.actions[int(rng.integers(len(self.actions)))] if self.actions else "look"

    def _replay(self, env: TextEnv, seed: int, noise_seed: int, actions: list[str]) -> list[tuple[str, float, bool, bool]]:
        env.reset(seed, noise_seed)
        return [_visible(env.step(action)) for action in actions]


def _visible(result: StepResult) -> tuple[str, float, bool, bool]:
    return result.observation.text, result.reward, result.terminated, result.truncated
