"""Does reasoning still depend on what the policy is shown? Cross-scoring, mutual information, alarms, stops, verdict."""

from ragen2.diagnostics.cross_score import cross_score
from ragen2.diagnostics.diagnose import Diagnosis, diagnose
from ragen2.diagnostics.early_stop import EarlyStop, EarlyStopConfig, StopDecision
from ragen2.diagnostics.history import PromptHistory
from ragen2.diagnostics.mismatch import logprob_mismatch
from ragen2.diagnostics.monitor import Monitor, MonitorConfig
from ragen2.diagnostics.mutual_information import mi_interval, mutual_information
from ragen2.diagnostics.online_verdict import Alarm, OnlineVerdict
from ragen2.diagnostics.permutation import PermutationTest, permutation_test
from ragen2.diagnostics.pointwise import WordTable, informative_words, pointwise_information
from ragen2.diagnostics.saturation import Saturation, saturation
from ragen2.diagnostics.signals import iteration_metrics
from ragen2.diagnostics.turn_curves import TurnCurves, TurnPoint, turn_curves
from ragen2.diagnostics.verdict import Verdict, judge
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.diagnostics.views import Slice, View, first_turn_view, leaking_pairs, mixed_view, probe_view, trajectory_view
from ragen2.errors import NotMeasurable

__all__ = [
    "Alarm",
    "Diagnosis",
    "EarlyStop",
    "EarlyStopConfig",
    "Monitor",
    "MonitorConfig",
    "NotMeasurable",
    "OnlineVerdict",
    "PermutationTest",
    "PromptHistory",
    "Saturation",
    "Slice",
    "StopDecision",
    "TurnCurves",
    "TurnPoint",
    "Verdict",
    "VerdictConfig",
    "View",
    "WordTable",
    "cross_score",
    "diagnose",
    "first_turn_view",
    "informative_words",
    "iteration_metrics",
    "judge",
    "leaking_pairs",
    "logprob_mismatch",
    "mi_interval",
    "mixed_view",
    "mutual_information",
    "permutation_test",
    "pointwise_information",
    "probe_view",
    "saturation",
    "trajectory_view",
    "turn_curves",
]
