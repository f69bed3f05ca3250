"""Theorem proving: one tactic a turn, judged by a real prover (RAGEN-2, arXiv 2604.06268, names Lean; Coq runs anywhere)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.options import number, one_of, whole_number
from ragen2.envs.splits import check_seed, draw_level, level_rng, split_of
from ragen2.envs.theorem_files import library, theorems_of_file
from ragen2.envs.theorem_formula import NotPropositional, read_goal
from ragen2.envs.theorem_search import Move, moves, prove
from ragen2.envs.theorem_tautologies import TautologySettings, canonical, draw_tautology
from ragen2.envs.theorem_words import tell_guess, tell_move, tell_stored
from ragen2.errors import ConfigError, EnvironmentFault
from ragen2.provers import PROVERS, ProofState, ProverBackend, TacticError, Theorem, make_prover

PROBLEMS = ("tautology", "library", "both", "file")
PROVEN = 1.0

_COQ_RULES = (
    "Prove the theorem in Coq, one tactic a turn. Shown are the hypotheses, then |- and what is to be shown.",
    "A tactic works on the first goal. Tactics: intros, exact, apply, split, left, right, destruct, specialize, contradiction,",
    "exfalso, exists, induction, simpl, rewrite, reflexivity, unfold, discriminate, injection, inversion, assert and their like.",
)
_NO_SEARCH = "Tactics that search for proofs (auto, tauto, lia and their like) are not allowed."
_COQ_EXAMPLES = "For example: intros p H1. or destruct H1 as [H2 H3]. or apply H2."
_LEAN_RULES = (
    "Prove the theorem in Lean 4, one tactic a turn, on one line. Shown are the hypotheses, then ⊢ and what is to be shown.",
    "For example: intro h or constructor or exact h.1 or rw [h].",
)
_NO_HOLES = "Axioms, holes (admit, sorry) and commands are not allowed."

_ANYWHERE = ("intros", "simpl", "reflexivity", "split", "left", "symmetry", "exfalso", "idtac", "hnf", "cbn")
"""What a random turn tries in a goal that is not propositional."""


class TheoremProving(TextEnv):
    """Prove a theorem, one tactic an action. Reward 1 once the prover's kernel accepts the whole proof, 0 before.

    A tactic that the prover rejects, or that is not an allowed tactic, is illegal, changes nothing and costs `error_penalty`. An
    episode ends without success after `max_steps` tactics. A prover that is down raises EnvironmentFault.

    `problems`: "tautology" (generated: up to `propositions` propositions, a proof of `shortest` to `longest` tactics exists),
    "library" (stored theorems), "both", or "file" (`path`, see `theorem_files`). `automation` allows Coq's tactics that search
    for whole proofs; without it a proof has to be built. `prover` is "coq" (`processes` of it, shared by all environments),
    "kimina" (a Lean server at `server`) or "lean-interact" (the Lean project in `lean_project`, the built REPL in `lean_repl`);
    the two in Lean take problems from a file. `close` leaves the prover running for others; it ends with the program.
    Raises ConfigError for a value that cannot be used.
    """

    multi_action = False

    def __init__(
        self,
        split: str = "train",
        problems: str = "tautology",
        prover: str = "coq",
        automation: bool = False,
        max_steps: int = 16,
        error_penalty: float = 0.0,
        propositions: int = 3,
        shortest: int = 3,
        longest: int = 7,
        path: str = "",
        server: str = "http://localhost:8000",
        processes: int = 2,
        lean_project: str = "",
        lean_repl: str = "",
    ) -> None:
        super().__init__(split)
        self.problems, self.prover = one_of("problems", problems, PROBLEMS), one_of("prover", prover, PROVERS)
        if not isinstance(automation, bool):
            raise ConfigError(f"theorem automation is {automation!r}; give True or False")
        self.automation = automation
        self.max_steps = whole_number("max_steps", max_steps, 1, 1000)
        self.error_penalty = number("error_penalty", error_penalty, 0.0, 1.0)
        self.tautologies = TautologySettings(
            whole_number("propositions", propositions, 2, 6),
            whole_number("shortest", shortest, 1, 12),
            whole_number("longest", longest, int(shortest), 12),
        )
        self._stored = self._stored_theorems(path)
        self._backend: ProverBackend = make_prover(
            prover,
            automation=automation,
            processes=whole_number("processes", processes, 1, 64),
            server=server,
            lean_project=lean_project,
            lean_repl=lean_repl,
        )
        self.concurrency = self._backend.concurrency
        self._state: ProofState | None = None
        self._last: StepResult | None = None
        self._steps = 0

    @property
    def instructions(self) -> str:
        rules = [*_COQ_RULES, *([] if self.automation else [_NO_SEARCH]), _NO_HOLES, _COQ_EXAMPLES]
        if self.prover != "coq":
            rules = [*_LEAN_RULES, _NO_HOLES]
        cost = f", an error costs {self.error_penalty:g}" if self.error_penalty else ""
        return "\n".join([*rules, f"Reward 1 when the theorem is proven, else 0{cost}. At most {self.max_steps} tactics."])

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        if self.problems in ("tautology", "both"):
            theorem = draw_level(level_seed, self.split, self._draw, content_of)
        else:
            theorem = self._pick_stored(level_rng(level_seed))
        self._state, self._last, self._steps = self._backend.open(theorem), None, 0
        return Observation(self._shown(self._state))

    def step(self, action: str) -> StepResult:
        state = self._current()
        if self._last is not None:
            return self._last.again()
        result = self._backend.apply(state, action)
        self._steps += 1
        late = self._steps >= self.max_steps
        if isinstance(result, TacticError):
            text = f"{self._shown(state)}\nrejected: {result.text}"
            return self._end(StepResult(Observation(text), 0.0 - self.error_penalty, False, late, {"legal": False}))
        self._state = result
        if result.proven:
            return self._end(StepResult(Observation("proven"), PROVEN, True, False, {"legal": True}), success=True)
        return self._end(StepResult(Observation(self._shown(result)), 0.0, False, late, {"legal": True}))

    def content(self) -> str:
        return content_of(self._current().theorem)

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The next tactic of a proof of the goals as they stand, or a random one that the prover accepts. One action.

        A proof is searched for propositional goals; a stored theorem has its reference proof, followed as long as nothing else
        was done. Raises EnvironmentFault after the end, NotImplementedError for Lean.
        """
        state = self._current()
        if self._last is not None:
            raise EnvironmentFault("theorem: no demonstration after the end of an episode; reset first")
        if self.prover != "coq":
            raise NotImplementedError("theorem has demonstrations in Coq only; use prover=coq for a warm-up")
        whole_number("max_actions", max_actions, 1, 1000)
        expert = rng.random() < expertise
        done, proof = len(state.tactics), state.theorem.proof
        try:
            goal = read_goal(state.goals[0])
        except NotPropositional:
            if expert and state.tactics == proof[:done] and done < len(proof):
                return Demonstration(tell_stored(state.goals[0], proof[done], True, rng), (proof[done],))
            tactic = self._accepted(state, rng)
            return Demonstration(tell_stored(state.goals[0], tactic, False, rng), (tactic,))
        found = prove(goal) if expert else None
        if found:
            return Demonstration(tell_move(goal, found[0], rng), (found[0].tactic,))
        possible: list[Move] = moves(goal)
        move = possible[int(rng.integers(len(possible)))]
        return Demonstration(tell_guess(goal, move, rng), (move.tactic,))

    def _accepted(self, state: ProofState, rng: np.random.Generator) -> str:
        """A tactic that the prover accepts in this state, by trying some in random order. `idtac` is always one."""
        for index in rng.permutation(len(_ANYWHERE)).tolist():
            if isinstance(self._backend.apply(state, f"{_ANYWHERE[index]}."), ProofState):
                return f"{_ANYWHERE[index]}."
        return "idtac."

    def _draw(self, rng: np.random.Generator) -> Theorem | None:
        if self.problems == "both" and rng.random() < 0.5:
            return self._pick_stored(rng)
        return draw_tautology(rng, self.tautologies)

    def _pick_stored(self, rng: np.random.Generator) -> Theorem:
        return self._stored[int(rng.integers(len(self._stored)))]

    def _stored_theorems(self, path: str) -> tuple[Theorem, ...]:
        """The stored theorems of this split."""
        if self.problems == "file" and not path:
            raise ConfigError("problems=file needs path=FILE, a JSON Lines file of theorems")
        if self.prover != "coq" and self.problems != "file":
            raise ConfigError(f"problems={self.problems} are written in Coq; prover={self.prover} needs problems=file")
        if self.problems == "tautology":
            return ()
        held = theorems_of_file(path) if self.problems == "file" else library()
        found = tuple(theorem for theorem in held if split_of(content_of(theorem)) == self.split)
        if not found:
            raise ConfigError(f"{path} has {len(held)} theorems and none of them falls in the split {self.split!r}; add more")
        return found

    def _shown(self, state: ProofState) -> str:
        return f"given\n{state.theorem.header}\n{state.text}" if state.theorem.header else state.text

    def _end(self, result: StepResult, success: bool = False) -> StepResult:
        """The result itself, kept and completed where it ends the episode."""
        if result.done:
            result = replace(result, info={**result.info, "success": success})
            self._last = result
        return result

    def _current(self) -> ProofState:
        if self._state is None:
            raise EnvironmentFault("theorem has no level yet; call reset(level_seed, noise_seed) first")
        return self._state


def content_of(theorem: Theorem) -> str:
    """Canonical text: header and statement without needless white space; propositions of a tautology go by number, not name."""
    plain = " ".join(f"{theorem.header} {theorem.statement}".split())
    if theorem.header:
        return f"theorem {plain}"
    try:
        goal = read_goal(f"|- {theorem.statement}")
    except NotPropositional:
        return f"theorem {plain}"
    return f"theorem {canonical(goal.conclusion)}"
