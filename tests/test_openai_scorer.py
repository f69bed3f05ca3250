"""Scoring by an OpenAI-compatible server: a small one on this machine, with a real model behind it, and many that misbehave."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
import torch
from engine_models import brute_logprobs, tiny_llama

from ragen2.diagnostics import cross_score, mutual_information
from ragen2.engines.completions import NoPromptLogprobs, Shape, read_reply
from ragen2.engines.hf import HFEngine
from ragen2.engines.openai_scorer import OpenAIScorer
from ragen2.errors import BadServerReply, ConfigError, ServerRefused, ServerUnreachable, TokenMismatch
from ragen2.trajectory import Ids, as_ids

Answer = Callable[["Server", dict[str, Any]], tuple[int, Any]]
"""A status, and a body: bytes as they are, anything else as JSON."""


class Server(ThreadingHTTPServer):
    """Answers `/v1/completions` with what `answer` says; keeps the requests and how many ran at once."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.extra: dict[str, str] = {}
        self.lock = threading.Lock()
        self.running = self.most = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[assignment]

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.requests.append(body)
            server.headers.append(dict(self.headers))
            server.paths.append(self.path)
            server.running += 1
            server.most = max(server.most, server.running)
        status, reply = server.answer(server, body)
        text = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        with server.lock:
            server.running -= 1
        try:
            self.send_response(status)
            for name, value in server.extra.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            self.close_connection = True  # the client had enough

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    servers: list[Server] = []

    def start(answer: Answer) -> Server:
        server = Server(answer)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


MODEL = tiny_llama(torch.float32)


def prompt_values(row: list[int]) -> list[float | None]:
    ids = as_ids(row)
    return [None, *brute_logprobs(MODEL, ids[:1], ids[1:])[0].tolist()]


def vllm(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
    """Like vLLM: prompt_logprobs an id, and the choices in any order."""
    if "prompt_logprobs" not in body or body["max_tokens"] < 1:
        return 400, {"error": {"message": "this server wants prompt_logprobs"}}
    choices = []
    for number, row in enumerate(body["prompt"]):
        entries = [
            None
            if value is None
            else {str(token): {"logprob": value, "rank": 1, "decoded_token": "x"}, "7777": {"logprob": -0.1}}
            for token, value in zip(row, prompt_values(row), strict=True)
        ]
        choices.append({"index": number, "text": "!", "logprobs": None, "prompt_logprobs": entries})
    return 200, {"choices": choices[::-1]}


def openai(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
    """Like OpenAI: strict about fields, echo with logprobs."""
    unknown = set(body) - {"model", "prompt", "max_tokens", "echo", "logprobs", "temperature"}
    if unknown:
        return 400, {"error": {"message": f"Unrecognized request argument supplied: {unknown}"}}
    choices = []
    for number, row in enumerate(body["prompt"]):
        values = [*prompt_values(row), *[-0.5] * body["max_tokens"]]
        texts = [f"<{token}>" for token in row] + ["!"] * body["max_tokens"]
        choices.append({"index": number, "text": "".join(texts), "logprobs": {"tokens": texts, "token_logprobs": values}})
    return 200, {"choices": choices}


def sampling_only(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
    """Echoes, but insists on sampling a token; ignores fields it does not know."""
    if body["max_tokens"] < 1:
        return 422, {"detail": "max_tokens must be at least 1"}
    return openai(server, {key: value for key, value in body.items() if key != "prompt_logprobs"}) if "echo" in body else (
        200, {"choices": [{"index": n, "text": "!"} for n in range(len(body["prompt"]))]})  # fmt: skip


def example(seed: int = 0) -> tuple[list[Ids], list[Ids]]:
    rng = np.random.default_rng(seed)
    contexts = [as_ids(rng.integers(0, 61, n)) for n in (5, 1, 8)]
    return contexts, [as_ids(rng.integers(0, 61, n)) for n in (4, 0, 1, 6)]


def quick(server: Server, **changes: Any) -> OpenAIScorer:
    return OpenAIScorer(server.url, "m", **{"backoff_s": 0.001, "timeout_s": 20.0, **changes})


@pytest.mark.parametrize(("answer", "shape"), [(vllm, "prompt_logprobs"), (openai, "echo"), (sampling_only, "echo_and_one")])
def test_both_shapes_equal_the_engine(serve, answer: Answer, shape: str) -> None:
    server, (contexts, reasonings) = serve(answer), example()
    scorer, seen = quick(server, rows_per_request=4), []
    found = cross_score(scorer, contexts, reasonings, lambda done, total: seen.append((done, total)))
    np.testing.assert_allclose(found, cross_score(HFEngine(MODEL, ()), contexts, reasonings), rtol=0, atol=1e-4)
    assert scorer.shape == shape
    assert seen[-1] == (9, 9)
    assert all(path == "/v1/completions" for path in server.paths)
    assert {body["model"] for body in server.requests} == {"m"}
    assert max(len(body["prompt"]) for body in server.requests) == 4
    before = len(server.requests)
    (rows,) = scorer.score(contexts[:1], [[*reasonings, reasonings[0]]])
    assert [len(values) for values in rows] == [4, 0, 1, 6, 4]
    assert len(server.requests) == before + 1  # the shape is known, three distinct rows go together


def test_figures_from_a_server_are_those_of_the_engine(serve) -> None:
    contexts, reasonings = example(1)
    lengths, source = [len(z) for z in reasonings], [0, 1, 2, 0]
    theirs = mutual_information(cross_score(quick(serve(vllm)), contexts, reasonings), lengths, source)
    ours = mutual_information(cross_score(HFEngine(MODEL, ()), contexts, reasonings), lengths, source)
    assert theirs["mi_sequence"] == pytest.approx(ours["mi_sequence"], abs=1e-4)


def test_requests_run_together_but_not_too_many(serve) -> None:
    gate = threading.Semaphore(0)

    def slow(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
        # The first request runs alone; then each waits a little for company.
        if len(server.requests) > 1:
            gate.acquire(timeout=0.05)
        return vllm(server, body)

    server, (contexts, reasonings) = serve(slow), example(2)
    cross_score(quick(server, rows_per_request=1, concurrency=3), contexts, reasonings)
    assert len(server.requests) == 9
    assert 1 < server.most <= 3


def test_a_key_is_sent_and_never_shown(serve) -> None:
    server = serve(lambda server, body: (401, {"error": {"message": "no such key"}}))
    with pytest.raises(ServerRefused, match=r"401.*no such key") as caught:
        quick(server, api_key="hush").score([as_ids([1])], [[as_ids([2])]])
    assert caught.value.status == 401
    assert "hush" not in str(caught.value)
    assert server.headers[0]["Authorization"] == "Bearer hush"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_and_not_for_ever(serve, status: int) -> None:
    def twice_busy(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
        return (status, b"busy") if len(server.requests) <= 2 else vllm(server, body)

    server = serve(twice_busy)
    server.extra["Retry-After"] = "0"
    assert len(quick(server).score([as_ids([1, 2])], [[as_ids([3])]])[0][0]) == 1
    assert len(server.requests) == 3
    always = serve(lambda server, body: (status, b"busy"))
    with pytest.raises(ServerRefused, match=f"{status}: 'busy'"):
        quick(always, retries=2).score([as_ids([1, 2])], [[as_ids([3])]])
    assert len(always.requests) == 3


def test_an_error_in_a_later_request_is_raised(serve) -> None:
    def breaks(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
        return vllm(server, body) if len(server.requests) < 4 else (404, {"detail": "gone"})

    with pytest.raises(ServerRefused, match="404: 'gone'"):
        cross_score(quick(serve(breaks), rows_per_request=1), *example(3))


def test_nobody_answers(serve) -> None:
    server = serve(vllm)
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(ServerUnreachable, match=r"after 2 tries: .*refused"):
        OpenAIScorer(url, "m", retries=1, backoff_s=0.001).score([as_ids([1])], [[as_ids([2])]])


def test_a_silent_server_times_out(serve) -> None:
    release = threading.Event()

    def silent(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
        release.wait(10)
        return 200, {}

    with pytest.raises(ServerUnreachable, match="timed out"):
        quick(serve(silent), timeout_s=0.1, retries=1).score([as_ids([1])], [[as_ids([2])]])
    release.set()


def test_a_redirect_is_not_followed(serve) -> None:
    elsewhere = serve(vllm)
    server = serve(lambda server, body: (302, b""))
    server.extra["Location"] = f"{elsewhere.url}/v1/completions"
    with pytest.raises(ServerRefused, match="302"):
        quick(server, api_key="hush").score([as_ids([1])], [[as_ids([2])]])
    assert not elsewhere.requests


def test_a_server_without_prompt_logprobs_is_named(serve) -> None:
    def chat_only(server: Server, body: dict[str, Any]) -> tuple[int, Any]:
        return 200, {"choices": [{"index": n, "text": "hello", "logprobs": None} for n in range(len(body["prompt"]))]}

    server = serve(chat_only)
    with pytest.raises(NoPromptLogprobs, match=r"gives no prompt log-probabilities.*vLLM"):
        quick(server).score([as_ids([1])], [[as_ids([2])]])
    assert len(server.requests) == 3  # each way once


def test_a_large_answer_is_cut_off(serve) -> None:
    with pytest.raises(BadServerReply, match="more than 1000 bytes"):
        quick(serve(lambda server, body: (200, b" " * 100_000)), max_body_bytes=1000).score([as_ids([1])], [[as_ids([2])]])


ROW = [as_ids([3, 4])]


def field(*entries: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "prompt_logprobs": list(entries)}]}).encode()


def echo(values: Any, tokens: Any = None) -> bytes:
    return json.dumps({"choices": [{"index": 0, "logprobs": {"token_logprobs": values, "tokens": tokens}}]}).encode()


@pytest.mark.parametrize(
    ("text", "shape", "error", "words"),
    [
        (b"<html>", "echo", BadServerReply, "no JSON: '<html>'"),
        (b"\xff\xfe", "echo", BadServerReply, "no JSON"),
        (b"[" * 100_000, "echo", BadServerReply, "no JSON"),
        (b"[]", "echo", BadServerReply, "no list of choices"),
        (b'{"choices": [1]}', "echo", BadServerReply, "no list of choices"),
        (b'{"choices": []}', "echo", BadServerReply, "sent 1 rows"),
        (b'{"choices": [{"index": 5}]}', "echo", BadServerReply, "sent 1 rows"),
        (b'{"choices": [{"index": {}}]}', "echo", BadServerReply, "sent 1 rows"),
        (b'{"choices": [{}]}', "echo", NoPromptLogprobs, "no log-probabilities with echo"),
        (b'{"choices": [{}]}', "prompt_logprobs", NoPromptLogprobs, "no prompt_logprobs"),
        (field(None), "prompt_logprobs", TokenMismatch, "2 token ids came back with 1"),
        (field(None, {"4": -1}, {"4": -1}), "prompt_logprobs", TokenMismatch, "came back with 3"),
        (field(None, {"9": {"logprob": -1.0}}), "prompt_logprobs", TokenMismatch, r"\['9'\] at token 1, but 4"),
        (field(None, None), "prompt_logprobs", BadServerReply, "not an object"),
        (field(None, {"4": {"logprob": "x"}}), "prompt_logprobs", BadServerReply, "'x', not a number"),
        (field(None, {"4": {"logprob": True}}), "prompt_logprobs", BadServerReply, "not a number"),
        (field(None, {"4": {"logprob": math.nan}}), "prompt_logprobs", BadServerReply, "0 or less"),
        (field(None, {"4": {"logprob": 0.5}}), "prompt_logprobs", BadServerReply, "0 or less"),
        (echo([None]), "echo", TokenMismatch, "came back with 1"),
        (echo([None, -1, -1, -1]), "echo", TokenMismatch, "came back with 4"),
        (echo([None, None]), "echo", BadServerReply, "'None', not a number"),
        (echo([None, -1], ["a", "token_id:9"]), "echo", TokenMismatch, "token_id:9.*token_id:4"),
    ],
)
def test_what_cannot_be_read_says_why(text: bytes, shape: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_reply(text, ROW, shape)


def test_what_can_be_read() -> None:
    cases: list[tuple[bytes, Shape]] = [
        (field(None, {"4": {"logprob": -1.5}}), "prompt_logprobs"),
        (field(None, {"4": -1.5}), "prompt_logprobs"),
        (echo([None, -1.5]), "echo"),
        (echo([None, -1.5, -3], ["token_id:3", "token_id:4", "token_id:9"]), "echo"),
    ]
    for text, shape in cases:
        (values,) = read_reply(text, ROW, shape)
        assert math.isnan(values[0])
        assert values[1] == -1.5
    assert read_reply(echo([None, -math.inf]), ROW, "echo")[0][1] == -math.inf
    assert read_reply(echo([None, 1e-6]), ROW, "echo")[0][1] == 0.0


def test_bad_arguments_are_refused() -> None:
    for url in ("host:8000", "ftp://host", "http://", "http://user:word@host", "http://host/v1?key=1"):
        with pytest.raises(ConfigError, match="server address"):
            OpenAIScorer(url, "m")
    with pytest.raises(ConfigError, match="shape 'chat'"):
        OpenAIScorer("http://host", "m", shape="chat")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 1"):
        OpenAIScorer("http://host", "m", concurrency=0)
    scorer = OpenAIScorer("http://127.0.0.1:9", "m")
    with pytest.raises(TokenMismatch, match="empty context"):
        scorer.score([as_ids([])], [[as_ids([1])]])
    with pytest.raises(TokenMismatch, match="2 contexts for 1 lists"):
        scorer.score([as_ids([1]), as_ids([2])], [[]])
    for wrong in (np.array([-1]), np.array([2**31]), np.array([0.5])):
        with pytest.raises(TokenMismatch, match="whole numbers"):
            scorer.score([as_ids([1])], [[wrong]])
    assert scorer.score([as_ids([1])], [[as_ids([])]])[0][0].shape == (0,)  # nothing to ask


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/completions"])
def test_addresses_with_and_without_the_path(serve, suffix: str) -> None:
    server = serve(vllm)
    OpenAIScorer(server.url + suffix, "m").score([as_ids([1])], [[as_ids([2])]])
    assert server.paths == ["/v1/completions"]
