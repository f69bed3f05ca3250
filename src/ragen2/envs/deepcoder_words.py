"""Words of DeepCoder's demonstrations: what the problem asks for, then its solution or a first guess."""

from __future__ import annotations

import ast

import numpy as np

from ragen2.envs.deepcoder_problems import Problem

_OPENINGS = (
    "The task is {name}: {task}",
    "{name} is to be written. {task}",
    "I need {name}. {task}",
    "Asked for: {name}. {task}",
)
_TAKES = ("It takes {given}.", "Given: {given}.", "The input is {given}.")
_SURE = (
    "I write it out with its edge cases.",
    "I know how to do this.",
    "A direct solution works.",
    "Step by step, this gives it.",
)
_UNSURE = ("I try the simplest thing first.", "I am not sure; a short guess.", "I start with one line.")
_TASK_CHARS = 160


def tell_solution(problem: Problem, solution: str, rng: np.random.Generator) -> tuple[str, str]:
    """(reasoning, code): the solution without its docstrings."""
    tree = ast.parse(solution)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None and len(node.body) > 1:
            node.body = node.body[1:]
    return f"{_about(problem, rng)} {_pick(_SURE, rng)}", ast.unparse(tree)


def tell_guess(problem: Problem, solution: str, rng: np.random.Generator) -> tuple[str, str]:
    """(reasoning, code): a line that returns or prints what is given, or nothing."""
    reasoning = f"{_about(problem, rng)} {_pick(_UNSURE, rng)}"
    if problem.name is None:
        return reasoning, _pick(("print(input())", "print(0)", "print()"), rng)
    names = _parameters(solution, problem.name)
    value = _pick((*names, "0", "None", "[]", "''", "True"), rng)
    return reasoning, f"def {problem.name}({', '.join(names)}):\n    return {value}"


def _about(problem: Problem, rng: np.random.Generator) -> str:
    name = "a program" if problem.name is None else problem.name
    task = _first_sentence(problem)
    given = (
        "standard input" if problem.name is None else ", ".join(_parameters(problem.solution or "", problem.name)) or "nothing"
    )
    return f"{_pick(_OPENINGS, rng).format(name=name, task=task)} {_pick(_TAKES, rng).format(given=given)}"


def _first_sentence(problem: Problem) -> str:
    """The first sentence of the function's docstring, or of the prompt where it is no code."""
    text = problem.prompt
    if problem.name is not None:
        function = _function(problem.solution or "", problem.name)
        text = (function and ast.get_docstring(function)) or text
    words = " ".join(text.split())[:_TASK_CHARS]
    return words.partition(". ")[0].rstrip(".") + "."


def _parameters(solution: str, name: str) -> tuple[str, ...]:
    function = _function(solution, name)
    return () if function is None else tuple(argument.arg for argument in function.args.args if argument.arg != "self")


def _function(solution: str, name: str) -> ast.FunctionDef | None:
    nodes = ast.walk(ast.parse(solution))
    return next((node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _pick(choices: tuple[str, ...], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
