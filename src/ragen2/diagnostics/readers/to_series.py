"""From the columns of a log to series in our metric names."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from statistics import fmean

from ragen2.diagnostics.readers.aliases import STOP_PREFIX, Match
from ragen2.diagnostics.readers.columns import HELPERS, Columns
from ragen2.diagnostics.readers.metric_names import STEP
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.errors import UnknownName

Readings = dict[int, float]
MOST_DEVIATION = 0.75
"""Two samples of a rate deviate by .71 at most: a score that deviates more is no rate, wherever its mean lies."""
RATE = re.compile(r"validation/(?:[^/]+/)?success|train/success|collapse/valid_(?:think|action)_rate|train/truncated_rate")
ROUNDING = 1e-3
SURELY_PER_CENT = 1.5
"""Between 1 and this it may be per cent of next to nothing or a score."""
VIEWS = ("first_turn", "trajectory", "probe")


def to_run_series(columns: Columns, source: str) -> RunSeries:
    """Name everything that has a name of ours.

    Raises UnknownName when the mapping asks for a column that the log does not have.
    """
    named = _Named(columns)
    named.take_mapping()
    for family, candidates in _families(columns).items():
        named.take_family(family, candidates)
    for view in VIEWS:
        named.derive_ceiling(view)
    named.check_rates()
    taken = named.taken
    skip = {*taken, *HELPERS, STEP}
    unmapped = tuple(sorted(name for name in columns.names() if name not in skip and not name.startswith(STOP_PREFIX)))
    series = {name: list(readings.items()) for name, readings in sorted(named.series.items())}
    notes = tuple([*columns.all_notes(), *named.notes])
    return RunSeries(series, columns.steps, columns.stop, notes, source, unmapped, named.names, columns.mixed)


def _families(columns: Columns) -> dict[str, dict[int, list[tuple[str, Match]]]]:
    """Our names -> place in the table of aliases -> columns."""
    found: dict[str, dict[int, list[tuple[str, Match]]]] = defaultdict(lambda: defaultdict(list))
    for name, match in columns.matches.items():
        if match is not None and len(columns.columns[name].steps):
            found[match.family][match.rank].append((name, match))
    return found


class _Named:
    """Series named so far, and from which columns."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.series: dict[str, Readings] = {}
        self.names: dict[str, str] = {}
        self.notes: list[str] = []
        self.taken: set[str] = set()
        self._mapped_families: set[str] = set()

    def take_mapping(self) -> None:
        """Columns that the user named."""
        for ours, theirs in self.columns.mapping.items():
            if ours == STEP:
                continue
            column = self.columns.columns.get(theirs)
            if column is None or not len(column.steps) + column.bad:
                raise UnknownName("column", theirs, list(self.columns.names())[:200])
            self.series[ours] = column.last_by_step()
            self.names[ours] = theirs
            self.taken.add(theirs)
            self._mapped_families.add(ours.replace("/log/", "/{0}/"))

    def take_family(self, family: str, candidates: dict[int, list[tuple[str, Match]]]) -> None:
        """The first alias in the table whose columns have usable readings; what the user mapped stands."""
        if family in self._mapped_families:
            return
        for rank in sorted(candidates):
            parts: dict[str, list[tuple[str, Readings]]] = defaultdict(list)
            for name, match in candidates[rank]:
                if match.ours in self.series:
                    continue
                readings = self._converted(name, match)
                if readings:
                    parts[match.ours].append((name, readings))
            for ours, found in parts.items():
                self._name(ours, found)
            if parts:
                return

    def derive_ceiling(self, view: str) -> None:
        """The ceiling of mutual information where it was not logged: log of the prompts, or of 1 / the chance of retrieval."""
        where = f"collapse/{view}"
        if f"{where}/mi_sequence" not in self.series or f"{where}/mi_upper_bound" in self.series:
            return
        for name, prompts in (("num_prompts", lambda x: x), ("retrieval_chance", lambda x: 1 / x)):
            readings = {
                step: math.log(prompts(value)) for step, value in self.series.get(f"{where}/{name}", {}).items() if value > 0
            }
            if readings:
                self.series[f"{where}/mi_upper_bound"] = readings
                self.names[f"{where}/mi_upper_bound"] = f"from {self.names[f'{where}/{name}']}"
                return

    def check_rates(self) -> None:
        """Shares in per cent become shares; what is neither is told."""
        for ours in [name for name in self.series if RATE.fullmatch(name)]:
            readings = self.series[ours]
            low, high = min(readings.values(), default=0.0), max(readings.values(), default=0.0)
            if low >= 0 and high <= 1 + ROUNDING:
                continue
            if low >= 0 and SURELY_PER_CENT < high <= 100 * (1 + ROUNDING):
                self.series[ours] = {step: value / 100 for step, value in readings.items()}
                self.notes.append(f"{self.names[ours]} was taken for per cent: its readings go up to {high:.3g}")
            else:
                self.notes.append(
                    f"{self.names[ours]} was taken for {ours} but its readings go from {low:.3g} to {high:.3g}, not from 0 to 1: "
                    "what is said about it may be wrong"
                )

    def _name(self, ours: str, found: list[tuple[str, Readings]]) -> None:
        steps = set.union(*(set(readings) for _, readings in found))
        self.series[ours] = {step: fmean(r[step] for _, r in found if step in r) for step in sorted(steps)}
        self.names[ours] = ", ".join(name for name, _ in found)
        self.taken.update(name for name, _ in found)
        if len(found) > 1:
            self.notes.append(f"{ours} is the mean of {len(found)} columns: {self.names[ours]}")

    def _converted(self, name: str, match: Match) -> Readings:
        readings = self.columns.columns[name].last_by_step()
        if match.convert == "complement":
            return {step: 1 - value for step, value in self._with_zeros(name, readings).items()}
        if match.convert == "if a rate":
            if not self._is_rate(name, readings):
                return {}
            self.notes.append(f"{name} was taken for {match.ours}: all its readings lie in 0..1")
        if match.convert == "unless whole sequences":
            prompt = self.columns.columns.get("prompt_length/mean")
            if prompt is not None and len(prompt.values) and max(prompt.values) < 1.5:
                if match.ours not in self.series:
                    self.notes.append(f"{name} was left out: it counts whole sequences (prompt_length/mean is about 0)")
                return {}
        return readings

    def _is_rate(self, name: str, readings: Readings) -> bool:
        spread = self.columns.columns.get(name.removesuffix("mean") + "std")
        within = all(0 <= value <= 1 for value in readings.values())
        if within and (spread is None or not len(spread.values) or max(spread.values) <= MOST_DEVIATION):
            return True
        if "format" in name:
            short = f"--map valid_think={name}"
            self.notes.append(f"{name} looks like a score of the format but is no rate in 0..1: {short} takes it as it is")
        return False

    def _with_zeros(self, name: str, readings: Readings) -> Readings:
        """A share of failures that is left out when there was none: 0 at the steps at which its neighbours were logged."""
        sibling = self.columns.columns.get(name.rpartition("/")[0] + "/success") if "/" in name else None
        if sibling is None or not len(sibling.steps):
            return readings
        missing = set(sibling.steps) - set(readings)
        if missing:
            self.notes.append(f"{name} is not logged at {len(missing)} steps: nobody was invalid there")
        found = readings | dict.fromkeys(missing, 0.0)
        return {step: found[step] for step in sorted(found)}
