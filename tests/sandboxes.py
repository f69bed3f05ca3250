"""Whether code can be run in the sandbox here; tests that need it skip with the reason."""

from __future__ import annotations

import pytest

from ragen2.errors import SandboxUnavailable
from ragen2.sandbox import check_sandbox


def why_no_sandbox() -> str:
    """The reason, empty where it works."""
    try:
        check_sandbox()
    except SandboxUnavailable as error:
        return str(error)
    return ""


NO_SANDBOX = why_no_sandbox()
needs_sandbox = pytest.mark.skipif(bool(NO_SANDBOX), reason=NO_SANDBOX[:200])
