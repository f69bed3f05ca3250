"""Every exception ragen2 raises on purpose, and the exit code the console script ends with for each.

A message names the thing, the value received, what is allowed and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Ragen2Error(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the console script returns."""

    exit_code = 1


class ConfigError(Ragen2Error):
    """A setting, name or argument that cannot be used."""

    exit_code = 2


class UnknownName(ConfigError):
    """A key, recipe, environment or algorithm that does not exist.

    The message lists what exists and names the nearest match.
    """

    def __init__(self, kind: str, name: str, options: Iterable[str]) -> None:
        self.kind, self.name, self.options = kind, name, sorted(options)
        super().__init__(f"unknown {kind} {name!r}.{did_you_mean(name, self.options)} Known: {', '.join(self.options)}.")


class MissingDependency(Ragen2Error):
    """A package of an extra is not installed."""

    exit_code = 3

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}, which is not installed: pip install 'ragen2[{extra}]'")


PROGRAM_PACKAGES = {"bwrap": "bubblewrap", "coqtop": "coq"}
"""The package of Debian, Fedora and others that brings a program, where it is named otherwise."""


class MissingProgram(Ragen2Error):
    """A program that is not a Python package is not on the path."""

    exit_code = 3

    def __init__(self, program: str, purpose: str) -> None:
        package = PROGRAM_PACKAGES.get(program, program)
        super().__init__(
            f"{purpose} needs the program {program!r}, which is not on the path: install the package {package!r} with your "
            f"system's package manager, for example apt-get install {package}"
        )


class SandboxUnavailable(Ragen2Error):
    """Model-written code cannot be run safely on this machine; the message says what is missing and how to get it."""

    exit_code = 3


class ModelError(Ragen2Error):
    """A model, tokenizer or chat template that cannot be loaded or used."""

    exit_code = 3


class TemplateError(ModelError):
    """A chat template that cannot be made into token ids the way the rollout needs."""


class ServerError(ModelError):
    """A model server that cannot be used as asked."""


class ServerUnreachable(ServerError):
    """No answer from a server: refused, unknown host, or silent for too long, after every retry."""


class ServerRefused(ServerError):
    """A server answered with an error status; `status` is its number."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class BadServerReply(ServerError):
    """A server answered something that cannot be read: no JSON, too large, fields missing or not numbers."""


class TrainingError(Ragen2Error):
    """Training cannot go on: non-finite loss, failed warm-up, nothing to train on."""

    exit_code = 4


class NonFiniteLoss(TrainingError):
    """A loss or gradient became NaN or infinite; the weights before the step are kept."""


class WarmupFailed(TrainingError):
    """Supervised warm-up ended without a model that reads its prompt and keeps the format."""


class StorageError(Ragen2Error):
    """A file that cannot be written or read whole: full disk, corrupt checkpoint, broken JSONL line."""

    exit_code = 5


class CheckpointCorrupt(StorageError):
    """A checkpoint that is incomplete or does not match its checksum."""


class EnvironmentFault(Ragen2Error):
    """An environment broke its contract (raised, hung, returned NaN). Costs its own trajectory, never the run."""


class SandboxBroken(EnvironmentFault):
    """The sandbox itself failed, not the code in it: nothing was learnt about that code."""


class TokenMismatch(Ragen2Error):
    """Token ids, masks and log-probabilities that should belong together do not."""


class NotMeasurable(Ragen2Error):
    """A diagnostic that cannot be computed; `reason` says why. Skipped is not zero."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class BoundViolated(Ragen2Error):
    """A computed number breaks a theorem it must obey: the computation is wrong, whatever the data."""


class NonFiniteReturn(Ragen2Error, ValueError):
    """A return, score or advantage input that is NaN, infinite or too large to square; names its group and trajectory."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or an empty string when nothing is near."""
    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
