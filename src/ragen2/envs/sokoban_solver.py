"""A* over pushes: the shortest list of moves that solves a Sokoban position, within a bounded number of positions.

Sets of cells are Python integers used as bit masks (bit i is cell i), so that a flood of the player's region is a few shifts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ragen2.envs.sokoban_room import DIRECTIONS, Level

UNREACHABLE = 1 << 30

State = tuple[int, int]
"""Player's cell and the mask of the boxes."""


@dataclass(frozen=True)
class Plan:
    """What a search found.

    `moves` is None when no solution was found. `proven` says that the search was complete: `moves` is a shortest solution, or
    there is none. `at_least` is a proven lower bound on the number of moves (UNREACHABLE where proven unsolvable).
    """

    moves: tuple[str, ...] | None
    proven: bool
    at_least: int
    nodes: int


def solve(level: Level, max_nodes: int = 4000) -> Plan:
    """A solution of `level`, shortest when at most `max_nodes` positions suffice to prove it.

    Else a second, greedy search of up to 10 times as many positions looks for any solution.
    """
    maps = _Maps.of(level)
    plan = _search(level, maps, max_nodes, weight=1)
    if plan.proven:
        return plan
    greedy = _search(level, maps, 10 * max_nodes, weight=5)
    if greedy.proven:
        return greedy
    return Plan(greedy.moves, False, plan.at_least, plan.nodes + greedy.nodes)


def solution_length(level: Level, max_nodes: int = 4000) -> int | None:
    """Number of moves of the solution `solve` finds; None where it finds none."""
    moves = solve(level, max_nodes).moves
    return None if moves is None else len(moves)


def shortest_at_least(level: Level, moves: int, max_nodes: int = 4000) -> bool:
    """Whether it is proven, within `max_nodes` positions, that no solution has fewer than `moves` moves."""
    return _search(level, _Maps.of(level), max_nodes, weight=1, enough=moves).at_least >= moves


@dataclass
class _Maps:
    """What the search needs to know of a room: offsets, floor, squares a box must never enter, pushes from a cell to a target."""

    offsets: tuple[int, ...]
    floor: int
    alive: int
    pushes: tuple[dict[int, int], ...]
    bounds: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, level: Level) -> _Maps:
        offsets = tuple(level.offset(direction) for direction in DIRECTIONS)
        floor = mask_of(cell for cell in range(level.rows * level.cols) if cell not in level.walls)
        pushes = tuple(_pushes_to(target, floor, offsets) for target in sorted(level.targets))
        alive = mask_of(cell for reach in pushes for cell in reach)
        return cls(offsets, floor, alive, pushes)

    def bound(self, boxes: int) -> int:
        """Fewest pushes that could bring every box to a target of its own (other boxes and the player ignored)."""
        known = self.bounds.get(boxes)
        if known is None:
            known = self.bounds[boxes] = self._assign(cells_of(boxes))
        return known

    def _assign(self, boxes: Iterator[int]) -> int:
        best = {0: 0}
        for box in boxes:
            following: dict[int, int] = {}
            for used, cost in best.items():
                for index, reach in enumerate(self.pushes):
                    if not used >> index & 1 and box in reach:
                        after = used | 1 << index
                        following[after] = min(following.get(after, UNREACHABLE), cost + reach[box])
            best = following
        return min(best.values(), default=UNREACHABLE)


def _pushes_to(target: int, floor: int, offsets: tuple[int, ...]) -> dict[int, int]:
    """Pushes a lone box needs from each cell to `target`, by playing backwards; cells that never get there are absent."""
    found = {target: 0}
    frontier = [target]
    for cell in frontier:
        for offset in offsets:
            before, stand = cell - offset, cell - 2 * offset
            if before not in found and floor >> before & 1 and floor >> stand & 1:
                found[before] = found[cell] + 1
                frontier.append(before)
    return found


def _search(level: Level, maps: _Maps, max_nodes: int, weight: int, enough: int = UNREACHABLE) -> Plan:
    """A* with the bound multiplied by `weight`; stops early once the lower bound reaches `enough` (weight 1)."""
    start = (level.player, mask_of(level.boxes))
    goal = mask_of(level.targets)
    bound = maps.bound(start[1])
    if bound >= UNREACHABLE:
        return Plan(None, True, UNREACHABLE, 0)
    cost: dict[State, int] = {start: 0}
    came: dict[State, tuple[State, int]] = {}
    queue: list[tuple[int, int, State]] = [(weight * bound, bound, start)]
    closed: set[State] = set()
    lower = bound
    while queue:
        estimate, _, state = heapq.heappop(queue)
        if state in closed:
            continue
        lower = max(lower, estimate) if weight == 1 else lower
        if state[1] & ~goal == 0:
            return Plan(_moves(start, state, came, maps), weight == 1, lower, len(closed))
        if len(closed) >= max_nodes or lower >= enough:
            return Plan(None, False, lower, len(closed))
        closed.add(state)
        for walked, box, offset in pushes_from(state, maps.floor, maps.alive, maps.offsets):
            after = (box, state[1] ^ (1 << box) ^ (1 << box + offset))
            total = cost[state] + walked + 1
            bound = maps.bound(after[1])
            if bound < UNREACHABLE and total < cost.get(after, UNREACHABLE):
                cost[after], came[after] = total, (state, offset)
                heapq.heappush(queue, (total + weight * bound, bound, after))
    return Plan(None, True, UNREACHABLE, len(closed))


def pushes_from(state: State, floor: int, alive: int, offsets: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Every push the player can walk to: (steps of the walk, the box's cell, its offset). `alive` are cells a box may enter."""
    player, boxes = state
    free = floor & ~boxes
    stands = []
    for offset in offsets:
        pushable = boxes & shift(free & alive, -offset) & shift(free, offset)
        stands.append(shift(pushable, -offset))
    wanted = stands[0] | stands[1] | stands[2] | stands[3]
    reach = layer = 1 << player
    walked = 0
    while layer:
        if layer & wanted:
            for offset, stand in zip(offsets, stands, strict=True):
                for cell in cells_of(layer & stand):
                    yield walked, cell + offset, offset
        layer = neighbours(layer, offsets) & free & ~reach
        reach |= layer
        walked += 1


def walk(start: int, end: int, free: int, offsets: tuple[int, ...]) -> list[int]:
    """Offsets of a shortest walk over `free` cells from `start` to `end`, which must be reachable."""
    layers = [1 << start]
    reach = layers[0]
    while not reach >> end & 1:
        layer = neighbours(layers[-1], offsets) & free & ~reach
        if not layer:
            raise ValueError(f"no walk from cell {start} to cell {end}")
        layers.append(layer)
        reach |= layer
    steps: list[int] = []
    for layer in reversed(layers[:-1]):
        offset = next(offset for offset in offsets if layer >> (end - offset) & 1)
        steps.append(offset)
        end -= offset
    return steps[::-1]


def _moves(start: State, end: State, came: dict[State, tuple[State, int]], maps: _Maps) -> tuple[str, ...]:
    names = dict(zip(maps.offsets, DIRECTIONS, strict=True))
    offsets: list[int] = []
    while end != start:
        before, offset = came[end]
        leg = walk(before[0], end[0] - offset, maps.floor & ~before[1], maps.offsets)
        offsets = [*leg, offset, *offsets]
        end = before
    return tuple(names[offset] for offset in offsets)


def flood(start: int, free: int, offsets: tuple[int, ...]) -> int:
    """Mask of the cells that connect to `start` over `free` cells."""
    reach = layer = 1 << start
    while layer:
        layer = neighbours(layer, offsets) & free & ~reach
        reach |= layer
    return reach


def shift(mask: int, offset: int) -> int:
    """Every cell of the mask moved by `offset` (the border of the room is wall, so nothing wraps around)."""
    return mask << offset if offset >= 0 else mask >> -offset


def neighbours(mask: int, offsets: tuple[int, ...]) -> int:
    """Cells one step away from a cell of the mask."""
    up, down, left, right = offsets
    return mask >> -up | mask << down | mask >> -left | mask << right


def mask_of(cells: Iterable[int]) -> int:
    """Cells as a bit mask."""
    mask = 0
    for cell in cells:
        mask |= 1 << cell
    return mask


def cells_of(mask: int) -> Iterator[int]:
    """Cells of a bit mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
