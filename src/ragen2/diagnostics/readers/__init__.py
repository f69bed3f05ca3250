"""Readers of logs that other trainers wrote: recognised by content, named like our metrics."""

from __future__ import annotations

from ragen2.diagnostics.readers.read import read_log
from ragen2.diagnostics.readers.recognise import KINDS, recognise
from ragen2.diagnostics.readers.run_series import RunSeries

__all__ = ["KINDS", "RunSeries", "read_log", "recognise"]
