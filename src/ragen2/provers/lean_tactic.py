"""Reads a model's answer as one Lean 4 tactic and refuses what could declare, open a hole, run code or change notation."""

from __future__ import annotations

import re
import unicodedata

from ragen2.provers.base import TacticRefused

MAX_CHARS = 600
"""Longest tactic."""

_FORBIDDEN = frozenset(
    (
        # holes, and proofs that rest on the compiler
        *("sorry", "sorryAx", "admit", "stop", "native_decide", "ofReduceBool", "ofReduceNat", "trustCompiler", "native"),
        *("decreasing_by", "termination_by", "lcProof", "implemented_by", "unsafe", "unsafeCast", "extern"),
        # commands
        *("axiom", "theorem", "lemma", "def", "abbrev", "example", "instance", "class", "structure", "inductive", "opaque"),
        *("constant", "mutual", "namespace", "section", "end", "variable", "universe", "import", "export", "open", "prelude"),
        *("set_option", "attribute", "deriving", "initialize", "builtin_initialize", "private", "protected", "noncomputable"),
        *("partial", "local", "scoped", "macro", "macro_rules", "syntax", "elab", "elab_rules", "notation", "infix", "infixl"),
        *(
            "infixr",
            "prefix",
            "postfix",
            "declare_syntax_cat",
            "simproc",
            "register_simp_attr",
            "add_decl_doc",
            "include",
            "omit",
        ),
        # code that runs while the proof is read
        *("run_tac", "run_cmd", "run_elab", "run_meta", "by_elab", "eval", "IO", "Lean", "Elab", "Meta", "dbg_trace", "dbgTrace"),
        *("include_str", "exec", "unsafeIO", "unsafeBaseIO", "trace", "trace_state", "unreachable", "panic", "polyrith"),
    )
)
_WORD = re.compile(r"[^\W\d][\w']*")
_MARKS = ('"', "#", "«", "»", "--", "/-", "-/", "@[", "`", ";;")


def read_lean_tactic(text: str) -> str:
    """The tactic in `text`, on one line. Raises TacticRefused for several lines, comments, strings, commands, holes, control or
    format characters, and for more than `MAX_CHARS` characters."""
    if len(text) > MAX_CHARS:
        raise TacticRefused(f"the tactic has {len(text)} characters; {MAX_CHARS} are allowed")
    tactic = text.strip(" \t\r\n")
    if not tactic:
        raise TacticRefused("give one tactic")
    for character in tactic:
        if unicodedata.category(character)[0] in "CZ" and character != " ":
            raise TacticRefused(f"the character {character!a} is not allowed; give one tactic on one line")
    for mark in _MARKS:
        if mark in tactic:
            raise TacticRefused(f"{mark!r} is not allowed in a tactic")
    # a word in other letters that Lean would read as the same (full-width, mathematical bold) is refused like the word itself
    for word in _WORD.findall(unicodedata.normalize("NFKC", tactic)):
        if word in _FORBIDDEN:
            raise TacticRefused(f"{word[:40]!r} is not allowed in a tactic")
    return tactic
