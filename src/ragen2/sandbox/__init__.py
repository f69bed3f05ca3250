"""A place where Python code that nobody trusts runs without harm: bubblewrap, limits, and a way out for plain values only."""

from ragen2.sandbox.checked import CheckOutcome, CheckScript, run_check
from ragen2.sandbox.function import Answer, SandboxFunction
from ragen2.sandbox.limits import SandboxLimits
from ragen2.sandbox.process import MODES, UnsafeSandbox
from ragen2.sandbox.result import Cause, SandboxResult
from ragen2.sandbox.runner import check_sandbox, run_python
from ragen2.sandbox.session import Sandbox

__all__ = [
    "MODES",
    "Answer",
    "Cause",
    "CheckOutcome",
    "CheckScript",
    "Sandbox",
    "SandboxFunction",
    "SandboxLimits",
    "SandboxResult",
    "UnsafeSandbox",
    "check_sandbox",
    "run_check",
    "run_python",
]
