"""Writes docs/adapters.md from the lists in the adapters: python docs/build_adapters.py (--check only compares)."""

from __future__ import annotations

import sys
from pathlib import Path

from ragen2.envs.adapters import reasoning_gym_names as gym
from ragen2.envs.adapters import textarena_names as arena
from ragen2.envs.adapters.gymnasium_text import VOCABULARIES

TARGET = Path(__file__).resolve().with_name("adapters.md")

NO_ANSWER = "no answer of its own to demonstrate"
NOTES = {
    "boxnet": NO_ANSWER,
    "codeio": "its items come out of running packaged code: made in the sandbox too",
    "coin_flip": "the answer must be within 1/10,000; the verifier gives its full score to `0`",
    "complex_arithmetic": "numbers only; the verifier gives its full score to `nan`",
    "game_of_life_halting": "compared with the item's answer; the verifier takes any text for right",
    "graph_color": NO_ANSWER,
    "intermediate_integration": "items that the package cannot integrate itself are drawn again",
    "polynomial_equations": "items without a solution are drawn again; for them the verifier takes any text",
    "propositional_logic": NO_ANSWER,
    "puzzle24": "must use the item's numbers and reach 24 exactly; the verifier checks neither",
    "rubiks_cube": NO_ANSWER,
    "rush_hour": NO_ANSWER,
    "sokoban": "rooms of 8x8 with 6 boxes at most by default; larger ones take many seconds now and then",
}

HEAD = """# Adapters

Made by `docs/build_adapters.py` from the lists in `ragen2.envs.adapters`; do not edit by hand.

Environments of other packages have ids with a prefix. `ragen2 envs` shows one line a prefix, `ragen2 envs --all` every id.

```python
import ragen2

ragen2.make("reasoning-gym/chain_sum", options={"max_terms": 3})
ragen2.make("textarena/FrozenLake-v0")
ragen2.make("gymnasium/FrozenLake-v1", options={"is_slippery": False})

from ragen2.envs.adapters.to_gymnasium import to_gymnasium

to_gymnasium(ragen2.make("sokoban"))
```

A package of yours adds a family of its own: `ragen2.envs.register_family("mine", "my_package.envs:Env", "name", ["a", "b"])`.
"""

GYM = """## reasoning-gym

One question, one answer. The level seed draws the item, its question decides the split. `reward="right"` (default) pays 1 for
the verifier's full score and else 0; `reward="score"` pays the score, of which many verifiers give a little to any text.
`options` are the data set's own. Items are made and scored in a child process with a limit on processor time and
PYTHONHASHSEED=0, so they are the same everywhere and a hanging verifier costs only its answer.

Nine verifiers run the answer as code. They run in the sandbox, and only answers of a small grammar get there: an answer that
is code could read the right answer from the interpreter that scores it. Where bubblewrap does not work these data sets
refuse.
"""

ARENA = """## textarena

The level seed makes the game, hidden parts included; the noise seed drives its chance. Games draw from Python's global
generator: it is lent to them and given back unchanged. The reward comes at the end, within -1 and 1. After an invalid move
some games return an error text as the reward and some pay for progress that nobody made; here such an end pays 0. The bandits
pay what the choice gives away, so the worst choice the most; here the best choice pays 1, any other 0. An end by the limit on
turns is a truncation, success only a reward of 1.
"""

GYMNASIUM = """## gymnasium

`gymnasium/<id>` takes any environment with Discrete or Text actions. `actions` names the numbered ones; `render` is "auto" (a
text observation, else the environment's own "ansi" picture, else numbers), "ansi", "observation" or a function. Colours
become square brackets. Success: see `GymnasiumText`; `success_return` sets a threshold. Splits show the same levels unless
`split_by_content=True`. Rewards are the environment's own: CartPole pays every legal action.
"""


def render() -> str:
    """The whole page."""
    parts = [HEAD, GYM, f"{len(gym.NAMES)} data sets of reasoning-gym 0.1.25 are included:\n"]
    rows = [(name, "sandbox" if name in gym.SANDBOXED else "child process", NOTES.get(name, "")) for name in gym.NAMES]
    parts += [table(("data set", "scored in", "note"), rows)]
    parts += [table(("left out", "why"), [("composite", "it only mixes other data sets")]), ARENA]
    parts += [f"{len(arena.NAMES)} ids of textarena 0.7.4 are included:\n"]
    parts += [
        table(
            ("id", "splits"), [(name, "same levels in all" if name in arena.FEW_LEVELS else "by content") for name in arena.NAMES]
        )
    ]
    parts += [table(("left out", "why"), sorted(arena.EXCLUDED.items())), GYMNASIUM]
    parts += [table(("environment", "actions"), [(name, ", ".join(words)) for name, words in VOCABULARIES.items()])]
    return "\n".join(parts)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *((f"`{first}`", *others) for first, *others in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    if "--check" in sys.argv[1:]:
        same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == render()
        print("up to date" if same else "docs/adapters.md is out of date: python docs/build_adapters.py")
        return 0 if same else 1
    TARGET.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
