"""Rollout files of this package and of other trainers: recognised by content, read turn by turn, measured off line."""

from ragen2.diagnostics.rollout_files.measure import measure_rollouts
from ragen2.diagnostics.rollout_files.read import KINDS, is_rollout_file, read_rollouts, rollout_kind
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample

__all__ = [
    "KINDS",
    "Episode",
    "ReadReport",
    "Sample",
    "is_rollout_file",
    "measure_rollouts",
    "read_rollouts",
    "rollout_kind",
]
