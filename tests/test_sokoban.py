"""Sokoban: rules and rewards, levels and their shortest solutions, files of human levels, demonstrations, hostile answers."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs import sokoban as sokoban_module
from ragen2.envs.grid import cell_name, parse_move
from ragen2.envs.sokoban import Sokoban
from ragen2.envs.sokoban_levels import LevelShape, generate_level, parse_levels
from ragen2.envs.sokoban_room import DIRECTIONS, SYMBOLS, Level, level_from_lines, move, replay
from ragen2.envs.sokoban_solver import UNREACHABLE, shortest_at_least, solution_length, solve
from ragen2.envs.splits import SPLITS, level_rng, split_of
from ragen2.errors import ConfigError, EnvironmentFault, StorageError

ONE_PUSH = ["#####", "#@$.#", "#   #", "#####"]


def play_file(tmp_path: Path, lines: list[str], **options: Any) -> Sokoban:
    """An environment that plays one room written in XSB."""
    path = tmp_path / "levels.xsb"
    path.write_text("\n".join(lines) + "\n")
    env = Sokoban("validation", human_levels=path, **options)
    env.reset(0, 0)
    return env


def shortest_by_single_moves(lines: list[str]) -> int | None:
    """Breadth first over single moves on a grid of characters: slow, and shares no code with the solver."""
    grid = {(row, col): symbol for row, line in enumerate(lines) for col, symbol in enumerate(line)}
    boxes = frozenset(at for at, symbol in grid.items() if symbol in "X*")
    targets = frozenset(at for at, symbol in grid.items() if symbol in "O*+")
    (player,) = (at for at, symbol in grid.items() if symbol in "P+")
    queue, seen = deque([(player, boxes, 0)]), {(player, boxes)}
    while queue:
        (row, col), boxes, count = queue.popleft()
        if boxes == targets:
            return count
        for down, right in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            to, beyond, pushed = (row + down, col + right), (row + 2 * down, col + 2 * right), boxes
            if to in boxes:
                if beyond in boxes or grid[beyond] == "#":
                    continue
                pushed = boxes - {to} | {beyond}
            if grid[to] != "#" and (to, pushed) not in seen:
                seen.add((to, pushed))
                queue.append((to, pushed, count + 1))
    return None


# What is shown


def test_what_is_shown(tmp_path: Path) -> None:
    lines = ["######", "#  . #", "#$ #@#", "# *  #", "######"]
    shown = "# # # # # #\n# _ _ O _ #\n# X _ # P #\n# _ * _ _ #\n# # # # # #"
    coordinates = "walls d3\nplayer e3 boxes b3 c4 targets d2 c4"
    env = play_file(tmp_path, lines)
    assert env.reset(0, 0).text == f"{shown}\n{coordinates}"
    assert env.content() == "sokoban ######/#__O_#/#X_#P#/#_*__#/######"
    assert play_file(tmp_path, lines, format="grid").reset(0, 0).text == shown
    assert play_file(tmp_path, lines, format="coord").reset(0, 0).text == coordinates
    inside = play_file(tmp_path, lines, border=False).reset(0, 0).text
    assert inside == "_ _ O _\nX _ # P\n_ * _ _\nwalls c2\nplayer d2 boxes a2 b3 targets c1 b3"


def test_last_line_of_one_box_and_no_walls(tmp_path: Path) -> None:
    env = play_file(tmp_path, ONE_PUSH, format="coord")
    assert env.reset(0, 0).text == "walls none\nplayer b2 box c2 target d2"
    assert env.step("Right").observation.text == "walls none\nplayer c2 box d2 target d2"


def test_player_on_a_target_is_drawn_with_a_plus(tmp_path: Path) -> None:
    env = play_file(tmp_path, ["#####", "#$ .#", "#  @#", "#####"])
    text = env.step("Up").observation.text
    assert text.splitlines()[1] == "# X _ + #"
    assert text.endswith("player d2 box b2 target d2")
    assert text.isascii()


@pytest.mark.parametrize("format", ["grid+coord", "grid", "coord"])
@pytest.mark.parametrize("border", [True, False])
def test_instructions_are_short_and_name_the_size(format: str, border: bool) -> None:
    text = Sokoban(format=format, border=border, rows=5, cols=7).instructions
    assert len(text.split()) <= 100
    assert "5 rows and 7 columns" in text
    assert all(f"{symbol} {name}" in text for name, symbol in SYMBOLS.items()) is (format != "coord")
    assert ("column letter" in text) is (format != "grid")


# Rules and rewards


def test_one_push_from_solved_pays_10_9_every_time(tmp_path: Path) -> None:
    env = play_file(tmp_path, ONE_PUSH)
    returns = []
    for member in range(16):
        env.reset(0, member)
        result = env.step("Right")
        assert (result.terminated, result.truncated, result.info["success"], result.info["legal"]) == (True, False, True, True)
        returns.append(result.reward)
    assert returns == [10.9] * 16


def test_rewards_of_pushing_on_off_and_over(tmp_path: Path) -> None:
    env = play_file(tmp_path, ["########", "#@$..  #", "#   $  #", "########"])
    assert [env.step("Right").reward for _ in range(3)] == pytest.approx([0.9, -0.1, -1.1])
    assert env.level.boxes == {1 * 8 + 5, 2 * 8 + 4}
    again = env.step("Up")
    assert (again.reward, again.info["legal"], again.info["moved"]) == (-0.1, True, False)


def test_walls_and_boxes_that_cannot_move_cost_a_step_and_change_nothing(tmp_path: Path) -> None:
    env = play_file(tmp_path, ["#######", "#@$$..#", "#     #", "#######"])
    before = env.level
    for direction in ("Up", "Left", "Right"):
        result = env.step(direction)
        assert (result.reward, result.info["legal"], result.info["moved"], result.done) == (-0.1, True, False, False)
        assert env.level == before
    assert env.step("Down").info["moved"] is True


def test_a_box_against_a_wall_does_not_move(tmp_path: Path) -> None:
    env = play_file(tmp_path, ["######", "#. @$#", "#    #", "######"])
    before = env.level
    assert env.step("Right").reward == -0.1
    assert env.level == before


def test_illegal_answers_are_free_but_end_the_episode_in_time(tmp_path: Path) -> None:
    env = play_file(tmp_path, ONE_PUSH, max_steps=3)
    first = env.step("push the box")
    assert (first.reward, first.done, first.info["legal"]) == (0.0, False, False)
    env.step("Down")
    last = env.step("")
    assert (last.terminated, last.truncated, last.info["success"]) == (False, True, False)
    after = env.step("Up")
    assert (after.reward, after.truncated, after.info["legal"], after.info["success"]) == (0.0, True, False, False)


def test_solving_with_the_last_step_is_success_not_truncation(tmp_path: Path) -> None:
    env = play_file(tmp_path, ONE_PUSH, max_steps=1)
    result = env.step("Right")
    assert (result.terminated, result.truncated, result.info["success"]) == (True, False, True)


def test_use_before_reset_says_so() -> None:
    for use in (lambda env: env.step("Up"), lambda env: env.content(), lambda env: env.plan()):
        with pytest.raises(EnvironmentFault, match="reset"):
            use(Sokoban())


@given(st.text(max_size=40) | st.sampled_from(["UP", " up ", "Ｕｐ", "Up.", "Up\x00", "\ud800", "Up || Down", "9" * 5000]))
def test_hostile_answers_change_nothing_unless_they_name_a_direction(text: str) -> None:
    env = Sokoban(rows=5, cols=6)
    env.reset(3, 0)
    before, direction = env.level, parse_move(text)
    result = env.step(text)
    assert result.info["legal"] is (direction is not None)
    assert env.level == (before if direction is None else move(before, direction))


# Levels


@pytest.mark.parametrize(
    ("rows", "cols", "boxes", "count"), [(5, 6, 1, 100), (6, 6, 1, 100), (7, 7, 2, 60), (8, 8, 2, 40), (10, 10, 4, 4)]
)
def test_generated_levels_are_solved_by_the_solver(rows: int, cols: int, boxes: int, count: int) -> None:
    shape = LevelShape(rows, cols, boxes)
    for seed in range(count):
        level = generate_level(level_rng(seed), shape)
        assert level is not None
        assert len(level.boxes) == len(level.targets) == boxes
        assert not level.boxes & level.targets
        assert not (level.boxes | level.targets | {level.player}) & level.walls
        plan = solve(level, max_nodes=1000)
        assert plan.moves is not None
        assert replay(level, plan.moves).solved
        assert len(plan.moves) >= plan.at_least >= 2


@pytest.mark.parametrize(("side", "boxes", "count"), [(6, 1, 60), (6, 2, 12), (7, 2, 6)])
def test_solutions_are_the_shortest(side: int, boxes: int, count: int) -> None:
    for seed in range(count):
        level = generate_level(level_rng(seed, 1), LevelShape(side, side, boxes))
        assert level is not None
        plan = solve(level, max_nodes=50_000)
        assert plan.proven
        assert plan.moves is not None
        truth = shortest_by_single_moves(level.lines())
        assert len(plan.moves) == plan.at_least == truth
        assert truth is not None
        assert shortest_at_least(level, truth)
        assert not shortest_at_least(level, truth + 1)


def test_solution_lengths_stay_in_the_range_asked_for() -> None:
    env = Sokoban(min_solution=4, max_solution=6)
    lengths = set()
    for seed in range(60):
        env.reset(seed, 0)
        lengths.add(solution_length(env.level))
    assert lengths == {4, 5, 6}


def test_positions_without_a_solution_are_proven_so() -> None:
    corner = level_from_lines(["#####", "#X_O#", "#_P_#", "#####"])
    assert solve(corner).proven
    assert solve(corner).moves is None
    assert solve(corner).at_least == UNREACHABLE
    assert solution_length(corner) is None
    walled_off = level_from_lines(["######", "#P#_O#", "##_X_#", "##___#", "######"])
    assert (solve(walled_off).moves, solve(walled_off).proven) == (None, True)


def test_search_is_bounded_and_says_that_it_gave_up() -> None:
    gave_up = 0
    for seed in range(5):
        level = generate_level(level_rng(seed), LevelShape(10, 10, 4))
        assert level is not None
        plan = solve(level, max_nodes=1)
        assert not plan.proven
        assert plan.nodes <= 1 + 10
        assert 2 <= plan.at_least < UNREACHABLE
        gave_up += plan.moves is None
    assert gave_up > 0


def test_levels_repeat_and_belong_to_their_split() -> None:
    contents: dict[str, set[str]] = {}
    for split in SPLITS:
        env, twin = Sokoban(split), Sokoban(split)
        contents[split] = set()
        for seed in range(100):
            text = env.reset(seed, 0).text
            assert twin.reset(seed, 99).text == text
            assert split_of(env.content()) == split
            contents[split].add(env.content())
    assert not contents["train"] & contents["validation"]
    assert not contents["train"] & contents["test"]
    assert not contents["validation"] & contents["test"]


def test_content_is_the_level_and_not_the_present_position() -> None:
    env = Sokoban()
    env.reset(0, 0)
    before = env.content()
    for direction in DIRECTIONS:
        env.step(direction)
    assert env.content() == before


@pytest.mark.parametrize("options", [{"size": 5, "border": False}, {"size": 6}])
def test_512_distinct_validation_levels(options: dict[str, Any]) -> None:
    assert len(validation_seeds(Sokoban("validation", **options), 512)) == 512


_DIGEST = """
import hashlib, numpy as np
from ragen2.envs.sokoban import Sokoban
seen = hashlib.sha256()
for options in ({}, {"size": 8, "boxes": 2}, {"size": 5, "border": False, "split": "validation"}):
    env = Sokoban(**options)
    for seed in range(40):
        seen.update(env.reset(seed, 0).text.encode())
        seen.update(repr((env.plan(), env.demonstrate(np.random.default_rng(seed), 0.5, 2))).encode())
print(seen.hexdigest())
"""


def test_levels_and_demonstrations_are_the_same_in_any_process() -> None:
    assert len(outputs_under_hash_seeds(_DIGEST)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"size": 3, "boxes": 5},
        {"size": 2},
        {"size": 11},
        {"size": 6.5},
        {"boxes": 0},
        {"min_solution": 0},
        {"min_solution": 5, "max_solution": 4},
        {"format": "picture"},
        {"max_steps": 0},
        {"border": "no"},
        {"split": "dev"},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Sokoban(**options)


@pytest.mark.parametrize("options", [{"size": 4}, {"rows": 3, "cols": 5}, {"size": 5, "min_solution": 40}])
def test_rooms_without_any_level_end_in_a_clear_error(options: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentFault, match="level seed 0 gave no train level"):
        Sokoban(**options).reset(0, 0)


def test_registered_and_sound() -> None:
    tried: list[dict[str, Any]] = [{}, {"size": 5, "border": False, "format": "coord"}, {"size": 8, "boxes": 2, "max_steps": 15}]
    for options in tried:
        report = check_env(ragen2.make("sokoban", **options))
        assert report.ok, str(report)


# Files of human levels

TWO_LEVELS = """\
; a comment with a # in it is no room line

  #####
  #. @#
###$  #
#    ##
#    #
######
Title: first

########
#@ $ . #
########
"""


def test_levels_of_a_file_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "levels.xsb"
    path.write_text(TWO_LEVELS)
    env = Sokoban("test", human_levels=path)
    assert env.reset(1, 0).text.splitlines()[1] == "# P _ X _ O _ #"
    assert env.reset(3, 0).text == env.reset(1, 0).text
    assert env.reset(0, 0).text.splitlines()[2] == "# # # X _ _ #"
    assert "a room." in env.instructions
    first = env.level
    assert first.walls >= {0, 1, first.cols}
    moves = solve(first).moves
    assert moves is not None
    assert [env.step(direction).reward for direction in moves][-1] == pytest.approx(10.9)
    assert check_env(env, make_env=lambda split: Sokoban("test", human_levels=path)).ok


@pytest.mark.parametrize(
    ("room", "message"),
    [
        ("####\n#@$.\n####", "open"),
        ("#####\n# $.#\n#####", "exactly one player"),
        ("#####\n#@$@#\n#####", "exactly one player"),
        ("#####\n#@$ #\n#####", "1 boxes and 0 targets"),
        ("#####\n#@  #\n#####", "0 boxes"),
        ("######\n#@ #$#\n######", "outside the room"),
        ("#" * 200 + "\n#@$.#\n#####", "too large"),
    ],
)
def test_broken_levels_are_named(room: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"level 2 of the file: .*{message}"):
        parse_levels("\n".join([*ONE_PUSH, "", room]))


def test_a_file_that_does_not_serve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        Sokoban("test", human_levels=tmp_path / "none.xsb")
    path = tmp_path / "levels.xsb"
    path.write_bytes(b"\xff\xfe#@$.#")
    with pytest.raises(StorageError, match="cannot read"):
        Sokoban("test", human_levels=path)
    path.write_text("no room here\n")
    with pytest.raises(ConfigError, match="no Sokoban level"):
        Sokoban("test", human_levels=path)
    path.write_text("\n".join(["#" * 30, "#@$." + " " * 25 + "#", "#" * 30, "", *ONE_PUSH]))
    assert Sokoban("test", human_levels=path).levels_left_out == 1
    path.write_text("\n".join(ONE_PUSH))
    with pytest.raises(ConfigError, match="evaluation"):
        Sokoban("train", human_levels=path)


@given(st.text(alphabet="#@$.*+ _-\nx;", max_size=120))
def test_any_text_gives_levels_or_a_named_error(text: str) -> None:
    try:
        levels = parse_levels(text)
    except ConfigError:
        return
    for level in levels:
        assert level_from_lines(level.lines()) == level


# Demonstrations


def places(text: str) -> dict[str, str]:
    """Cells of the last line of an observation with one box."""
    words = text.splitlines()[-1].split()
    return dict(zip(words[::2], words[1::2], strict=True))


def test_experts_solve_in_the_fewest_moves_planning_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[Level] = []

    def counted(level: Level) -> Any:
        searches.append(level)
        return solve(level)

    monkeypatch.setattr(sokoban_module, "solve", counted)
    env, rng = Sokoban(), np.random.default_rng(0)
    for seed in range(30):
        env.reset(seed, 0)
        fewest, count, success = solution_length(env.level), 0, None
        searches.clear()
        while success is None:
            for action in env.demonstrate(rng, 1.0, 2).actions:
                success = env.step(action).info.get("success")
                count += 1
        assert (success, count) == (True, fewest)
        assert len(searches) == 1


@pytest.mark.parametrize("expertise", [0.0, 0.5, 1.0])
def test_reasoning_is_short_varied_and_true(expertise: float) -> None:
    env, rng = Sokoban(size=5, border=False), np.random.default_rng(1)
    told = set()
    for seed in range(120):
        at = places(env.reset(seed, 0).text)
        demonstration = env.demonstrate(rng, expertise, 2)
        reasoning = demonstration.reasoning
        assert 12 <= len(reasoning.split()) <= 32
        assert set(at.values()) <= set(re.findall(r"\b[a-j]\d\b", reasoning))
        told.add(re.sub(r"\b[a-j]\d\b|Up|Down|Left|Right|up|down|left|right", "?", reasoning))
        for action in demonstration.actions:
            result = env.step(action)
            now = places(result.observation.text)
            if now == at:
                blocked = now["player"] if f"{action} stays" in reasoning or f"{action} wall" in reasoning else now["box"]
                assert re.search(rf"{action} (stays at|wall, stay|cannot push|box) {blocked}", reasoning)
            elif now["box"] != at["box"]:
                target = "target " if now["box"] == now["target"] else ""
                assert re.search(rf"{action} (box|pushing) to {target}{now['box']}", reasoning)
            else:
                assert re.search(rf"{action} (to|into) {now['player']}", reasoning)
            at = now
            if result.done:
                break
        assert demonstration.actions[-1] in reasoning
    assert len(told) > 60


def test_the_push_that_is_announced_is_the_next_of_the_plan() -> None:
    env, rng = Sokoban(), np.random.default_rng(2)
    for seed in range(60):
        env.reset(seed, 0)
        level, plan = env.level, solve(env.level).moves
        assert plan is not None
        reasoning = env.demonstrate(rng, 1.0, 1).reasoning
        (direction,) = re.findall(r"push (Up|Down|Left|Right)", reasoning)
        for step in plan:
            after = move(level, step)
            if after.boxes != level.boxes:
                row, col = level.position(level.player)
                assert step == direction
                assert re.search(rf"(from|at|need) {cell_name(row, col)}\b", reasoning)
                break
            level = after


def test_demonstrations_in_a_lost_position_admit_it(tmp_path: Path) -> None:
    env = play_file(tmp_path, ["######", "#$ @ #", "#   .#", "######"])
    told = {env.demonstrate(np.random.default_rng(seed), 1.0, 2).reasoning for seed in range(20)}
    assert all(re.search("no plan|no way|may be stuck", text) for text in told)
    env.step("Down")
    assert env.plan().proven
    assert env.plan().moves is None


def test_demonstrations_replan_after_other_moves() -> None:
    env, rng = Sokoban(size=8, boxes=2), np.random.default_rng(5)
    env.reset(4, 0)
    for turn in range(200):
        demonstration = env.demonstrate(rng, 0.8 if turn < 10 else 1.0, 2)
        results = [env.step(action) for action in demonstration.actions]
        if results[-1].done or env.plan().moves is None:
            break
        assert replay(env.level, env.plan().moves or ()).solved
    else:
        pytest.fail("an expert of 200 turns did not end the episode")


def test_no_demonstration_after_the_end(tmp_path: Path) -> None:
    env = play_file(tmp_path, ONE_PUSH)
    with pytest.raises(ConfigError, match="max_actions"):
        env.demonstrate(np.random.default_rng(0), 1.0, 0)
    env.step("Right")
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 2)
