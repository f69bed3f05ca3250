"""Reads a model's answer as one Coq tactic and refuses everything else, before Coq sees it.

Coq's commands (which could declare axioms, change the statement, read and write files) are sentences of their own that begin with
a capital letter. So: exactly one sentence, its first word from a list of tactics, no word of the forbidden ones anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ragen2.provers.base import TacticRefused

MAX_CHARS = 400
"""Longest tactic."""

TACTICS = (
    *("intros", "intro", "exact", "apply", "assumption", "split", "left", "right", "exists", "eexists", "constructor"),
    *("destruct", "induction", "simpl", "reflexivity", "symmetry", "transitivity", "rewrite", "unfold", "fold", "subst"),
    *("contradiction", "exfalso", "discriminate", "injection", "inversion", "assert", "enough", "cut", "specialize"),
    *("pose", "set", "remember", "generalize", "revert", "clear", "rename", "move", "change", "replace", "f_equal"),
    *("case", "elim", "eapply", "refine", "red", "hnf", "cbn", "cbv", "lazy", "compute", "absurd", "pattern", "eassert"),
    *("econstructor", "edestruct", "einduction", "exact", "eexact", "erewrite", "simple", "dependent", "case_eq", "elimtype"),
    *("try", "repeat", "do", "first", "solve", "progress", "match", "lazymatch", "idtac", "once", "now_show", "instantiate"),
)
"""First words of a tactic that takes a step."""

AUTOMATION = frozenset(
    (
        *("auto", "eauto", "trivial", "easy", "now", "tauto", "dtauto", "intuition", "dintuition", "firstorder", "congruence"),
        *("lia", "nia", "lra", "nra", "psatz", "ring", "ring_simplify", "field", "omega", "decide", "btauto", "rtauto"),
        *("debug", "info_auto", "info_eauto", "info_trivial", "bfs", "gintuition"),
    )
)
"""Tactics that search for whole proofs."""

_FORBIDDEN = frozenset(
    (
        # leave a hole, go round the kernel's checks, or run other programs
        *("admit", "give_up", "shelve", "shelve_unifiable", "unshelve", "exact_no_check", "native_compute", "vm_compute"),
        *("native_cast_no_check", "vm_cast_no_check", "casted", "abstract", "transparent_abstract", "par", "swap", "cycle"),
        *("time", "time_constr", "timeout", "optimize_heap", "debug", "fail", "gfail", "ltac2", "ltac1", "external"),
        *("show_ltac_profile", "start_ltac_profiling", "stop_ltac_profiling", "reset_ltac_profile", "restart_timer"),
        # commands, should a version of Coq ever take one inside a tactic
        *("Axiom", "Parameter", "Hypothesis", "Conjecture", "Admitted", "Admit", "Abort", "Qed", "Defined", "Save", "Proof"),
        *("Theorem", "Lemma", "Definition", "Notation", "Require", "Import", "Load", "Declare", "Redirect", "Extraction"),
        *("Drop", "Fail", "Timeout", "Undo", "BackTo", "Reset", "Quit", "Cd", "Ltac", "Ltac2", "Obligation"),
    )
)

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_']*")
_SELECTOR = re.compile(r"(?:all|[0-9]{1,3}(?: ?[-,] ?[0-9]{1,3}){0,4}) ?:(?!=) ?")
_BULLETS = re.compile(r"(?:-{1,4}|\+{1,4}|\*{1,4}) ?(?=[a-z(\[])")


def read_tactic(text: str, *, automation: bool = False, forbidden: Iterable[str] = ()) -> str:
    """The tactic in `text` as one line that ends with a full stop; comments and a leading bullet are left out.

    `automation` allows the tactics of `AUTOMATION`; `forbidden` are more words to refuse. Raises TacticRefused for anything that
    is not exactly one allowed tactic of at most `MAX_CHARS` characters of plain ASCII.
    """
    if len(text) > MAX_CHARS:
        raise TacticRefused(f"the tactic has {len(text)} characters; {MAX_CHARS} are allowed")
    strange = next((character for character in text if not (" " <= character <= "~" or character in "\t\r\n")), None)
    if strange is not None:
        raise TacticRefused(f"the character {strange!a} is not allowed; write plain ASCII, for example /\\ and ->")
    if '"' in text:
        raise TacticRefused('strings (") are not allowed')
    sentence = " ".join(_without_comments(text).split())
    sentence = _BULLETS.sub("", sentence, count=1) if _BULLETS.match(sentence) else sentence
    sentence = sentence if sentence.endswith(".") else f"{sentence}."
    if ". " in sentence or ".." in sentence or sentence == ".":
        raise TacticRefused("give exactly one tactic, ended by one full stop")
    if "<prompt" in sentence or "prompt>" in sentence:
        raise TacticRefused("this is not a tactic")
    _check_words(sentence, automation, frozenset(forbidden))
    return sentence


def _check_words(sentence: str, automation: bool, forbidden: frozenset[str]) -> None:
    selected = _SELECTOR.match(sentence)
    body = (sentence[selected.end() :] if selected else sentence).lstrip("([ ")
    first = _WORD.match(body)
    if first is None:
        raise TacticRefused("a tactic begins with a word such as intros, apply or rewrite")
    if first[0] not in TACTICS and not (automation and first[0] in AUTOMATION):
        raise TacticRefused(f"{first[0][:40]!r} is not one of the allowed tactics")
    for word in _WORD.findall(sentence):
        if word in _FORBIDDEN or word in forbidden:
            raise TacticRefused(f"{word[:40]!r} is not allowed in a tactic")
        if word in AUTOMATION and not automation:
            raise TacticRefused(f"{word!r} is not allowed: prove the goal step by step")


def _without_comments(text: str) -> str:
    """The text with each comment, comments in it included, replaced by a space."""
    kept: list[str] = []
    depth = place = 0
    while place < len(text):
        pair = text[place : place + 2]
        if pair == "(*":
            depth, place = depth + 1, place + 2
        elif pair == "*)" and depth:
            depth, place = depth - 1, place + 2
            kept.append(" " if depth == 0 else "")
        else:
            kept.append(text[place] if depth == 0 else "")
            place += 1
    if depth:
        raise TacticRefused("a comment is not closed")
    return "".join(kept)
