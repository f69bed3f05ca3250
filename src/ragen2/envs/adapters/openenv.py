"""An environment served by OpenEnv, here or on another machine, as one of ours."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping
from typing import Any

from ragen2.envs.adapters.openenv_session import MAX_ACTION_CHARS, OpenEnvSession, RefusedAction
from ragen2.envs.base import Observation, StepResult, TextEnv
from ragen2.envs.options import number, one_of, whole_number
from ragen2.envs.splits import check_seed
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency

ACTION_KINDS = ("text", "number", "json")


class OpenEnvClient(TextEnv):
    """An environment of an OpenEnv server, by `url`: "http://127.0.0.1:8000". One WebSocket session an instance.

    A server of `ragen2 serve-env` gives the same trajectories as the environment itself. For other servers:
    the text shown is the field `text_field` of the observation, or the whole observation as JSON where it has no such field;
    an action is sent as `{action_field: text}` ("text"), as `{action_field: whole number}` ("number"), or is itself a JSON object
    ("json"), always with the fields of `action_extra`; what the server's schema refuses is an illegal action. A reset carries
    `seed` (the level seed) and, unless `only_seed`, `level_seed`, `noise_seed` and `split`. `truncated`, `success`, `legal` are
    read from the observation where it has them; else nothing is truncated, every accepted action is legal, and success is an
    end whose reward is at least `success_reward`.

    A reward that is absent (what a NaN becomes on the way) is a fault unless `missing_reward` says what it counts; so are a
    reward that is no finite number, a server that cannot be reached, is silent for `timeout_s` seconds, or says it failed:
    all raise EnvironmentFault, and the next reset connects anew. Raises MissingDependency without the package websockets.
    """

    concurrency = 8
    split_by_content = False

    def __init__(
        self,
        split: str = "train",
        url: str = "",
        timeout_s: float = 60.0,
        instructions: str | None = None,
        multi_action: bool | None = None,
        text_field: str = "text",
        action_field: str = "text",
        action_kind: str = "text",
        action_extra: Mapping[str, Any] | None = None,
        only_seed: bool = False,
        success_reward: float = 1.0,
        missing_reward: float | None = None,
        concurrency: int = 8,
    ) -> None:
        super().__init__(split)
        if importlib.util.find_spec("websockets") is None:
            raise MissingDependency("websockets", "openenv-client", "environment 'openenv'")
        self._session = OpenEnvSession(url, number("timeout_s", timeout_s, 0.001, 3600))
        self._told_instructions, self._told_multi_action = instructions, multi_action
        self._text_field, self._action_field, self._extra = text_field, action_field, dict(action_extra or {})
        self._kind = one_of("action_kind of openenv", action_kind, ACTION_KINDS)
        if self._kind != "json" and not action_field:
            raise ConfigError("action_field is empty; name the field of the server's action, or set action_kind=json")
        self._only_seed = only_seed
        self._success_reward = number("success_reward", success_reward, -1e9, 1e9)
        self._missing_reward = None if missing_reward is None else number("missing_reward", missing_reward, -1e9, 1e9)
        self.concurrency = whole_number("concurrency", concurrency, 1, 256)
        self._first: Mapping[str, Any] | None = None
        self._shown, self._content = "", ""
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        """As configured, else as the server says; asking before the first reset plays a reset of seed 0."""
        if self._told_instructions is not None:
            return self._told_instructions
        told = self._start().get("instructions")
        return told if isinstance(told, str) and told else "Act in the environment: read the observation, write one action."

    @property
    def multi_action(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As configured, else as the server says; False where it does not say."""
        return self._start().get("multi_action") is True if self._told_multi_action is None else self._told_multi_action

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        data: dict[str, Any] = {"seed": check_seed("level_seed", level_seed)}
        noise = check_seed("noise_seed", noise_seed)
        if not self._only_seed:
            data |= {"level_seed": data["seed"], "noise_seed": noise, "split": self.split}
        self._last = None
        fields, _, done = _parts(self._session.ask("reset", data, fresh=True))
        if done:
            raise EnvironmentFault(f"the server {self._session.url} says that the episode is over at its start")
        self._first = fields
        self._shown = self._text_of(fields)
        level = fields.get("level")
        self._content = f"openenv\n{level if isinstance(level, str) and level else self._shown}"
        return Observation(self._shown)

    def step(self, action: str) -> StepResult:
        if not self._content:
            raise EnvironmentFault("openenv: step before reset; call reset(level_seed, noise_seed) first")
        if self._last is not None:
            return self._last.again()
        try:
            fields, reward, done = _parts(self._session.ask("step", self._payload(action)))
        except RefusedAction:
            return StepResult(Observation(self._shown), 0.0, False, False, {"legal": False})
        paid = self._reward(reward)
        self._shown = self._text_of(fields)
        truncated = done and fields.get("truncated") is True
        info: dict[str, Any] = {"legal": fields.get("legal") is not False}
        if done:
            success = fields.get("success")
            info["success"] = success if isinstance(success, bool) else not truncated and paid >= self._success_reward
        result = StepResult(Observation(self._shown), paid, done and not truncated, truncated, info)
        self._last = result if done else None
        return result

    def content(self) -> str:
        if not self._content:
            raise EnvironmentFault("openenv has no level yet; call reset(level_seed, noise_seed) first")
        return self._content

    def close(self) -> None:
        self._session.close()

    def _start(self) -> Mapping[str, Any]:
        if self._first is None:
            self.reset(0, 0)
        assert self._first is not None, "a reset sets the first observation"
        return self._first

    def _payload(self, action: str) -> dict[str, Any]:
        """The action as the server takes it. Raises RefusedAction where the text is none of that kind."""
        text = action[:MAX_ACTION_CHARS].encode(errors="replace").decode()
        if self._kind == "text":
            return {**self._extra, self._action_field: text}
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RefusedAction("no JSON") from error
        if self._kind == "json" and isinstance(value, dict):
            return {**value, **self._extra}
        if self._kind == "number" and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
            return {**self._extra, self._action_field: value}
        raise RefusedAction(f"no {'JSON object' if self._kind == 'json' else 'whole number'}")

    def _text_of(self, fields: Mapping[str, Any]) -> str:
        text = fields.get(self._text_field)
        if not isinstance(text, str):
            text = json.dumps(fields, ensure_ascii=False, sort_keys=True)
        return text.encode(errors="replace").decode()

    def _reward(self, reward: object) -> float:
        if reward is None and self._missing_reward is not None:
            return self._missing_reward
        if not isinstance(reward, (bool, int, float)) or abs(reward) > 1e300 or not math.isfinite(reward):
            shown = (
                "no reward (set missing_reward if it leaves some out)" if reward is None else f"the reward {str(reward)[:80]!r}"
            )
            raise EnvironmentFault(f"the server {self._session.url} gave {shown}; a reward is a finite number")
        return float(reward)


def _parts(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], object, bool]:
    """Fields of the observation, reward and end. Raises EnvironmentFault where the reply has another form."""
    fields, done = data.get("observation"), data.get("done", False)
    if not isinstance(fields, dict) or not isinstance(done, bool):
        raise EnvironmentFault(
            f"an OpenEnv server must answer with an observation (object) and done (bool); got {str(data)[:200]}"
        )
    return fields, data.get("reward"), done
