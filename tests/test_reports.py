"""The report is one safe, self-contained file, whatever the run directory holds."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from ragen2.errors import ConfigError
from ragen2.reports import write_report
from ragen2.reports.charts import Series, line_chart, ticks
from ragen2.reports.examples import EXAMPLES, choose_examples, split_reply
from ragen2.reports.run_data import chosen_files, read_run
from ragen2.reports.text import duration, escape, number, percent
from ragen2.training.metrics_log import MetricsLog
from ragen2.trajectory import RolloutBatch, Trajectory, Turn, as_ids

HOSTILE = "<script>alert(1)</script>\" onload='x' &amp; \u202egnol\u202c \x00\ud800 ]]> <!-- <img src=x onerror=alert(2)>"
VOID = {"meta", "br", "line", "circle", "polyline", "i"}


class Page(HTMLParser):
    """Tags opened and closed, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.stack: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in {"meta", "br"}:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack[-1] == tag, f"</{tag}> while {self.stack[-3:]} is open"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.text += data.replace("\u00a0", " ")


def trajectory(
    k: int, *, reward: float = 0.0, valid: bool = True, reply: str = "go right</think><answer>Right</answer>", turns: int = 2
) -> Trajectory:
    def turn(index: int) -> Turn:
        shown, sampled = as_ids(range(20 + 9 * index)), as_ids(range(7))
        last = index == turns - 1
        return Turn(
            index=index,
            context_ids=shown,
            sampled_ids=sampled,
            logprobs=np.full(7, -0.25, dtype=np.float32),
            observation=f"P__\n_O_\n__G level {k}",
            reply=reply,
            reasoning_span=(0, 4),
            actions=("Right",),
            reward=reward if last else 0.0,
            penalty=-0.1 if k % 5 == 4 else 0.0,
            parse_status="ok" if k % 5 != 4 else "no_answer",
            valid_action=k % 5 != 4,
            truncated=False,
        )

    return Trajectory(
        prompt_id=f"prompt-{k // 4}",
        level_seed=k // 4,
        noise_seed=k,
        environment="frozen-lake",
        turns=tuple(turn(index) for index in range(turns)),
        success=reward > 0,
        valid=valid,
        stop_reason="terminated" if valid else "fault",
        fault=None if valid else "timeout: step took 10 s",
        final_observation="P__",
    )


def write_rollouts(run: Path, name: str, trajectories: list[Trajectory]) -> None:
    groups = tuple(k // 4 for k in range(len(trajectories)))
    RolloutBatch(tuple(trajectories), groups, 1, {"temperature": 1.0}).to_jsonl(run / "rollouts" / name)


def make_run(run: Path, steps: int = 12) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text("recipe: frozen-lake\nseed: 0\n")
    with MetricsLog(run, writers=("jsonl",)) as log:
        for step in range(steps + 1):
            metrics: dict[str, float] = {}
            if step in (0, steps):
                success = 0.40 if step == 0 else 0.675
                metrics |= {
                    "validation/frozen-lake/success": success,
                    "validation/frozen-lake/success_low": success - 0.04,
                    "validation/frozen-lake/success_high": success + 0.04,
                    "validation/frozen-lake/episodes": 512,
                }
            if step:
                metrics |= {
                    "train/success": 0.4 + 0.02 * step + 0.02 * math.sin(step),
                    "train/return": 0.3 + 0.02 * step,
                    "train/task_return": 0.32 + 0.02 * step,
                    "filter/groups": 8,
                    "filter/kept_groups": 4 + step % 3,
                    "collapse/valid_think_rate": 0.99 - 0.001 * step,
                    "collapse/valid_action_rate": 0.97 - 0.001 * step,
                    "collapse/first_turn/mi_sequence": 2.05 - 0.01 * step,
                    "collapse/first_turn/mi_upper_bound": math.log(8),
                    "policy/entropy": 0.5 / (1 + 0.1 * step),
                    "policy/gradient_norm": 0.2 + 0.01 * step,
                    "time/iteration": 5.5,
                    "time/rollout": 2.7,
                    "time/update": 2.6,
                    "speed/sampled_tokens_per_second": 4200 + 10 * step,
                    "custom/anything": step**2,
                }
            log.log(step, metrics)
    for step in (1, steps):
        write_rollouts(run, f"train-{step:06d}.jsonl", [trajectory(k, reward=float(k % 3 == 0)) for k in range(16)])
    held_out = [trajectory(k, reward=float(k % 2), valid=k != 7) for k in range(24)]
    write_rollouts(run, f"validation-frozen-lake-{steps:06d}.jsonl", held_out)
    verdict = {
        "verdict": "template collapse",
        "onset_step": 6,
        "explanation": "Reasoning no longer depends on the prompt.",
        "evidence": ["MI fell from 2.05 to 0.3"],
        "also": ["degrading"],
        "confidence": 0.8,
        "regime": "template",
        "what_to_try": ["a lower learning rate", "filter.top_p=0.8"],
    }
    (run / "verdict.json").write_text(json.dumps(verdict))
    (run / "run.json").write_text(json.dumps({"ragen2": "0.1.0", "threads": 2}))
    (run / "summary.json").write_text(json.dumps({"stopped_early": {"reason": "spread", "detail": "too small"}}))
    return run


def page_of(run: Path) -> tuple[str, Page]:
    path = write_report(run)
    assert path == run / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.stack == []
    return text, page


def test_full_run(tmp_path: Path) -> None:
    text, page = page_of(make_run(tmp_path / "run-1"))
    assert "template collapse" in page.text
    assert "40.0 % → 67.5 %" in page.text
    assert "40.0 % (36.0 to 44.0)" in page.text
    assert "+27.5 points" in page.text
    assert "6 of 8" not in page.text
    assert "4 of 8" in page.text
    assert page.text.count("onset 6") >= 8
    assert "Mutual information / ceiling" in page.text
    assert "Stopped early: reason spread" in page.text
    assert "custom/anything" in page.text
    assert "a lower learning rate" in page.text
    assert page.opened.count("polyline") > 12
    assert sum(1 for item in page.attributes if item == ("details", "class", "example")) == EXAMPLES
    assert "timeout" in page.text
    assert "recipe: frozen-lake" in page.text
    assert len(text) < 600_000


def test_nothing_is_fetched_and_nothing_runs(tmp_path: Path) -> None:
    text, page = page_of(make_run(tmp_path / "run"))
    assert not {"script", "link", "img", "iframe", "object"} & set(page.opened)
    assert not [item for item in page.attributes if item[1] in ("src", "href") or item[1].startswith("on")]
    assert not re.search(r"https?://|url\(|@import", text)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = tmp_path / "<b>run & co"
    make_run(run, steps=1)
    hostile = [trajectory(k, reply=HOSTILE + ("</think>" if k else "") + HOSTILE) for k in range(3)]
    write_rollouts(run, "validation-x-000001.jsonl", hostile)
    (run / "config.yaml").write_text(HOSTILE.replace("\ud800", ""))
    (run / "verdict.json").write_text(
        json.dumps({"verdict": HOSTILE, "evidence": {HOSTILE: [HOSTILE]}, "also": [HOSTILE], "x": HOSTILE})
    )
    text, page = page_of(run)
    assert "script" not in page.opened
    assert "img" not in page.opened
    assert not [item for item in page.attributes if item[1].startswith("on")]
    assert "<script>alert(1)</script>" in page.text
    assert "\u202e" not in text
    assert "\\u202e" in page.text
    assert "\x00" not in text


@pytest.mark.parametrize("missing", ["config.yaml", "metrics.jsonl", "verdict.json", "rollouts"])
def test_missing_parts(tmp_path: Path, missing: str) -> None:
    run = make_run(tmp_path / "run")
    target = run / missing
    if target.is_dir():
        for file in target.iterdir():
            file.unlink()
    else:
        target.unlink()
    _, page = page_of(run)
    expected = {
        "config.yaml": "no config.yaml",
        "metrics.jsonl": "There are no numbers in metrics.jsonl yet",
        "verdict.json": "no verdict yet",
        "rollouts": "No rollouts were kept",
    }
    assert expected[missing].lower() in page.text.lower()


def test_one_iteration(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with MetricsLog(run, writers=("jsonl",)) as log:
        log.log(1, {"train/success": 0.25, "policy/entropy": math.nan, "collapse/skipped": "only 3 prompts", "x": None})
    _, page = page_of(run)
    assert "25.0 %" in page.text
    assert "nan" not in page.text.lower().replace("ragen2", "").split()


def test_broken_files_become_notes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "rollouts" / "train-000012.jsonl").write_text("{broken\n")
    (run / "verdict.json").write_text("[1, 2")
    _, page = page_of(run)
    assert "train-000012.jsonl line 1 is not JSON" in page.text
    assert "verdict.json is not JSON" in page.text


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not a run directory"):
        write_report(tmp_path)


def test_same_run_same_examples(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    first, second = (re.sub(r"written .* UTC", "", page_of(run)[0]) for _ in range(2))
    assert first == second


def test_choice_of_examples() -> None:
    items = [trajectory(k, reward=float(k), valid=k != 20) for k in range(30)]
    chosen = choose_examples(items, np.random.default_rng(0))
    assert len(chosen) == EXAMPLES
    assert [e.trajectory.noise_seed for e in chosen if e.choice == "best"] == [29, 28, 27]
    assert [e.trajectory.noise_seed for e in chosen if e.choice == "worst"] == [0, 1, 2]
    assert [e.trajectory.noise_seed for e in chosen if e.choice == "fault"] == [20]
    assert len({e.trajectory.noise_seed for e in chosen}) == EXAMPLES
    assert len(choose_examples(items[:3], np.random.default_rng(0))) == 3
    assert choose_examples([], np.random.default_rng(0)) == []


def test_files_read_are_bounded() -> None:
    files = [Path(f"train-{k:06d}.jsonl") for k in range(1, 101)]
    files += [Path("validation-a-000000.jsonl"), Path("validation-a-000100.jsonl"), Path("validation-b-000100.jsonl")]
    names = [file.name for file in chosen_files(files)]
    assert len(names) == 8
    assert {"train-000001.jsonl", "train-000100.jsonl", "validation-a-000100.jsonl", "validation-b-000100.jsonl"} <= set(names)
    assert "validation-a-000000.jsonl" not in names


def test_reply_is_cut_at_the_first_closing_tag() -> None:
    assert split_reply("a</think>b</think>c") == ("a", "b</think>c")
    assert split_reply("no tag") == (None, "no tag")


def test_chart() -> None:
    picture = line_chart("T", [Series("a", [(1, 0.5), (2, 0.75)]), Series("empty", [])], rate=True, onset=2)
    assert "step 2: a 0.75" in picture
    assert "onset 2" in picture
    assert "empty" not in picture
    assert line_chart("T", [Series("a", [])]) == ""
    assert "NaN" not in line_chart("T", [Series("a", [(5, 3.0)])])
    assert "NaN" not in line_chart("T", [Series("a", [(k, 1e-300) for k in range(3)])])
    long = line_chart("T", [Series("a", [(k, float(k)) for k in range(5000)])])
    assert long.count("<title>") <= 200


@pytest.mark.parametrize(
    "low, high, expected",
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 10, [0, 2, 4, 6, 8, 10]), (-1, 1, [-1, -0.5, 0, 0.5, 1]), (3, 97, [20, 40, 60, 80])],
)
def test_ticks(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_numbers_and_text() -> None:
    assert [number(x) for x in (None, 3, 0.12345, 12.345, 12345.6, 1e-7, True)] == [
        "–",
        "3",
        "0.123",
        "12.3",
        "12,346",
        "1.00e-07",
        "True",
    ]
    assert percent(0.625) == "62.5\u00a0%"
    assert percent(math.nan) == "–"
    assert [duration(x) for x in (None, 5.5, 65, 7260)] == ["–", "5.5 s", "1 min 5 s", "2 h 1 min"]
    assert "990 characters left out" in escape("x" * 1000, most=10)


def test_reading_is_tolerant_of_types(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a": true, "b": "text", "c": [1], "d": 2}\n')
    run = read_run(tmp_path)
    assert run.series("a") == []
    assert run.series("c") == []
    assert run.series("d") == [(1.0, 2.0)]
    _, page = page_of(tmp_path)
    assert "d" in page.text
