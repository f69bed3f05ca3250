"""HTML reports of runs."""

from ragen2.reports.run_report import write_report

__all__ = ["write_report"]
