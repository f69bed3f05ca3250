"""The games of textarena 0.7.4 for one player, and which of them are left out and why. Known without loading the package."""

from __future__ import annotations

_NAMES = """
2048-v0 2048-v0-10x10 2048-v0-3x3 2048-v0-5x5 2048-v0-6x6 2048-v0-8x8 2048-v0-easy 2048-v0-extreme 2048-v0-hard
2048-v0-mega-easy 2048-v0-super-easy 2048-v0-ultra-easy 2048-v0-very-easy 2048-v0-very-hard Bandit-v0 Bandit-v0-hard
Blackjack-v0 Blackjack-v0-long Countdown-v0 Crosswords-v0 Crosswords-v0-hardcore Cryptarithm-v0 FifteenPuzzle-v0 FrozenLake-v0
FrozenLake-v0-hardcore FrozenLake-v0-random GuessTheNumber-v0 GuessTheNumber-v0-hardcore LightsOut-v0 LogicPuzzle-v0
LogicPuzzle-v0-hard Mastermind-v0 Mastermind-v0-extreme Mastermind-v0-hard Minesweeper-v0 Minesweeper-v0-hard
Minesweeper-v0-medium Minesweeper-v0-small PegJump-v0 RushHour-v0 Secretary-v0 Secretary-v0-long Set-v0 Slitherlink-v0
Sokoban-v0 Sudoku-v0 Sudoku-v0-easy Sudoku-v0-medium Sudoku-v0-very-easy ThreeCardMonte-v0 TowerOfHanoi-v0
TowerOfHanoi-v0-extreme TowerOfHanoi-v0-hard TowerOfHanoi-v0-hardcore TowerOfHanoi-v0-medium
"""
NAMES = tuple(_NAMES.split())

_WORDS = "downloads word lists of NLTK when it is made"
_SERVER = "needs a language model behind a paid server"
_SYNTAX = "its source is no valid Python before 3.12"
_SLOW = "making a level takes 10 to 30 seconds"

EXCLUDED = {
    "GuessWho-v0": _SERVER,
    "Hangman-v0": _WORDS,
    "Hangman-v0-hardcore": _WORDS,
    "Klondike-v0": _SYNTAX,
    "Sokoban-v0-medium": _SLOW,
    "Sudoku-v0-hard": _SLOW,
    "TwentyQuestions-v0": _SERVER,
    "TwentyQuestions-v0-hardcore": _SERVER,
    "UltimateTexasHoldem-v0": _SYNTAX,
    "WordLadder-v0": _WORDS,
    "WordLadder-v0-hard": _WORDS,
    "WordLadder-v0-medium": _WORDS,
    "WordSearch-v0": _WORDS,
    "WordSearch-v0-hardcore": _WORDS,
    "Wordle-v0": _WORDS,
    "Wordle-v0-hardcore": _WORDS,
    "Wordle-v0-long": _WORDS,
    "Wordle-v0-long-hardcore": _WORDS,
}
"""Games for one player that are not offered, and why."""

_FEW_LEVELS = """
Countdown-v0 Cryptarithm-v0 GuessTheNumber-v0 Minesweeper-v0 Minesweeper-v0-hard Minesweeper-v0-medium
Minesweeper-v0-small PegJump-v0 TowerOfHanoi-v0 TowerOfHanoi-v0-extreme TowerOfHanoi-v0-hard TowerOfHanoi-v0-hardcore
TowerOfHanoi-v0-medium
"""
FEW_LEVELS = frozenset(_FEW_LEVELS.split())
"""Games with too few different levels to split by content: every split shows them all. Minesweeper has one, since its mines are
laid after the first move."""

PAYS_REGRET = frozenset({"Bandit-v0", "Bandit-v0-hard"})
"""Games that pay at the end what the choice gives away: the worse the choice, the more, and nothing for the best. Here the best
choice pays 1 and is success, any other pays 0."""
