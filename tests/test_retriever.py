"""Retrievers: BM25 with its kept index, the HTTP server and its client, plug-ins, and faults."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ragen2.envs import retriever_bm25, retriever_client
from ragen2.envs.retriever import Passage, ask, open_retriever
from ragen2.envs.retriever_bm25 import Bm25Retriever, split_words
from ragen2.envs.retriever_client import HttpRetriever
from ragen2.envs.retriever_server import MAX_BODY_BYTES, RetrieverServer
from ragen2.envs.searchqa_files import read_passages
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency

PASSAGES = (
    Passage("Ghana: capital", "Accra"),
    Passage("Togo: capital", "Lomé"),
    Passage("Ghana: anthem", "God Bless Our Homeland Ghana"),
    Passage("Chad: capital", "N'Djamena"),
)


class Fixed:
    """A retriever that answers the same passages, whatever is asked."""

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        return [list(PASSAGES[:topk]) for _ in queries]


class Broken:
    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        raise RuntimeError("index lost")


# BM25


def test_bm25_finds_words_without_accents_and_ranks_titles_first() -> None:
    pytest.importorskip("bm25s", reason="needs the extra search")
    index = Bm25Retriever(PASSAGES)
    assert index.retrieve(["ghana capital"], 1) == [[PASSAGES[0]]]
    assert index.retrieve(["LOME", "ndjamena", "zzz", ""], 3) == [[PASSAGES[1]], [PASSAGES[3]], [], []]
    assert [passage.title for passage in index.retrieve(["capital"], 2)[0]] == ["Ghana: capital", "Togo: capital"]
    assert index.retrieve(["ghana " * 5000], 9)[0][0].title.startswith("Ghana")


def test_words_of_any_text_are_split() -> None:
    assert split_words("The Côte d'Ivoire — 1,200 km") == ["cote", "divoire", "1", "200", "km"]
    assert split_words("\ud800 \x00 __ ...") == []


def test_passages_without_words_are_refused() -> None:
    pytest.importorskip("bm25s", reason="needs the extra search")
    with pytest.raises(ConfigError, match="no words"):
        Bm25Retriever([Passage("", "...")])


def test_an_index_is_kept_on_disk_and_a_damaged_one_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bm25s", reason="needs the extra search")
    monkeypatch.setattr(retriever_bm25, "LEAST_KEPT", 1)
    built = Bm25Retriever(PASSAGES, tmp_path)
    (place,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    monkeypatch.setattr(retriever_bm25, "_built", lambda *_: pytest.fail("built although it is kept"))
    read = Bm25Retriever(PASSAGES, tmp_path)
    assert read.retrieve(["ghana capital"], 4) == built.retrieve(["ghana capital"], 4)
    monkeypatch.undo()
    monkeypatch.setattr(retriever_bm25, "LEAST_KEPT", 1)
    for file in place.glob("*.npy"):
        file.write_bytes(b"\x93NUMPY broken")
    assert Bm25Retriever(PASSAGES, tmp_path).retrieve(["togo"], 1) == [[PASSAGES[1]]]
    shutil.rmtree(place)
    place.write_text("a file where the folder belongs")
    assert Bm25Retriever(PASSAGES, tmp_path).retrieve(["togo"], 1) == [[PASSAGES[1]]]


def test_without_bm25s_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingDependency, match=r"ragen2\[search\]"):
        Bm25Retriever(PASSAGES)


# Plug-ins


def test_a_retriever_of_the_users_own_is_opened_by_name() -> None:
    assert ask(open_retriever(f"{__name__}:Fixed", 1.0), "x", 2) == list(PASSAGES[:2])
    assert isinstance(open_retriever("http://localhost:1", 1.0), HttpRetriever)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nonsense", "package.module:Name"),
        ("os.path:", "package.module:Name"),
        ("no_such_module_at_all:Name", "cannot be imported"),
        (f"{__name__}:Fixd", "Did you mean 'Fixed'"),
        ("builtins:dict", "no method retrieve"),
        ("http://", "give an address"),
    ],
)
def test_what_is_no_retriever_is_refused(where: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_retriever(where, 1.0)


@pytest.mark.parametrize("answer", [None, [], [[], []], [["text"]], [[Passage(1, "x")]], [(PASSAGES[0],)]])  # type: ignore[arg-type]
def test_a_wrong_answer_is_a_fault(answer: Any) -> None:
    class Wrong:
        def retrieve(self, queries: Sequence[str], topk: int) -> Any:
            return answer

    with pytest.raises(EnvironmentFault, match="must return"):
        ask(Wrong(), "x", 3)


def test_a_raising_retriever_is_a_fault() -> None:
    with pytest.raises(EnvironmentFault, match="RuntimeError: index lost"):
        ask(Broken(), "x", 3)


# Server and client


@pytest.fixture
def server() -> Iterator[RetrieverServer]:
    with RetrieverServer(Fixed(), port=0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join(5)


def send(server: RetrieverServer, method: str, path: str, body: bytes | None, **headers: str) -> tuple[int, Any]:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read() or b"null")
    finally:
        connection.close()


def test_client_and_server_agree(server: RetrieverServer) -> None:
    client = HttpRetriever(f"{server.address}/", 5.0)
    assert client.retrieve(["ghana", "\ud800 \x00"], 2) == [list(PASSAGES[:2])] * 2
    assert send(server, "GET", "/health", None) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", None, 404),
        ("POST", "/other", b"{}", 404),
        ("PUT", "/retrieve", b"{}", 501),
        ("POST", "/retrieve", b"", 400),
        ("POST", "/retrieve", b"\xff\xfe", 400),
        ("POST", "/retrieve", b"[" * 100_000, 400),
        ("POST", "/retrieve", b"[]", 400),
        ("POST", "/retrieve", b'{"queries": "a"}', 400),
        ("POST", "/retrieve", b'{"queries": [1]}', 400),
        ("POST", "/retrieve", json.dumps({"queries": ["a"] * 65}).encode(), 400),
        ("POST", "/retrieve", json.dumps({"queries": ["a" * 401]}).encode(), 400),
        ("POST", "/retrieve", b'{"queries": ["a"], "topk": 0}', 400),
        ("POST", "/retrieve", b'{"queries": ["a"], "topk": true}', 400),
        ("POST", "/retrieve", b'{"queries": ["a"], "topk": 1e99}', 400),
    ],
)
def test_bad_requests_are_answered_with_a_json_error(
    server: RetrieverServer, method: str, path: str, body: bytes | None, status: int
) -> None:
    got, answer = send(server, method, path, body)
    assert got == status
    assert isinstance(answer["error"], str) and answer["error"]
    assert send(server, "GET", "/health", None)[0] == 200


@pytest.mark.parametrize(("told", "status"), [(str(MAX_BODY_BYTES + 1), 413), ("-1", 411), ("9" * 40, 411), ("\u00b2", 411)])
def test_the_length_of_a_body_is_bounded(server: RetrieverServer, told: str, status: int) -> None:
    assert send(server, "POST", "/retrieve", None, **{"Content-Length": told})[0] == status


def test_a_failing_retriever_is_told_and_the_server_goes_on() -> None:
    with RetrieverServer(Broken(), port=0) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        assert send(running, "POST", "/retrieve", b'{"queries": ["a"]}') == (
            500,
            {"error": "the retriever raised RuntimeError: index lost"},
        )
        with pytest.raises(EnvironmentFault, match="500"):
            HttpRetriever(running.address).retrieve(["a"], 1)
        running.shutdown()


def test_a_taken_port_is_told(server: RetrieverServer) -> None:
    with pytest.raises(ConfigError, match="cannot serve on"):
        RetrieverServer(Fixed(), port=urlsplit(server.address).port or 0)


def test_no_server_is_a_fault_after_the_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(retriever_client.time, "sleep", slept.append)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EnvironmentFault, match="ragen2 serve-retriever"):
        HttpRetriever(f"http://127.0.0.1:{port}", 2.0).retrieve(["a"], 1)
    assert slept == [0.2, 0.4]


def test_a_silent_server_is_a_fault() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(EnvironmentFault, match="did not answer"):
            HttpRetriever(f"http://127.0.0.1:{silent.getsockname()[1]}", 0.2).retrieve(["a"], 1)


REPLIES = {
    "no json": b"<html>",
    "no result": b'{"results": []}',
    "too few": b'{"result": []}',
    "no lists": b'{"result": ["a"]}',
    "no passage": b'{"result": [[{"score": 1}]]}',
    "deep": b"[" * 200_000,
}


@pytest.fixture
def scripted() -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """A server that answers what it is told to, one after the other, the last one for ever."""
    script: list[tuple[int, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = script.pop(0) if len(script) > 1 else script[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}", script
        running.shutdown()


@pytest.mark.parametrize("name", REPLIES)
def test_an_answer_of_another_form_is_a_fault(scripted: tuple[str, list[tuple[int, bytes]]], name: str) -> None:
    address, script = scripted
    script.append((200, REPLIES[name]))
    with pytest.raises(EnvironmentFault):
        HttpRetriever(address, 5.0).retrieve(["a"], 1)


def test_a_busy_server_is_asked_again_and_other_formats_are_read(
    scripted: tuple[str, list[tuple[int, bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retriever_client.time, "sleep", lambda seconds: None)
    address, script = scripted
    found = {"result": [[{"document": {"contents": '"Ghana"\nAccra is\nthe capital'}, "score": 1.5}, {"contents": "T\nx"}]]}
    script += [(503, b""), (429, b""), (200, json.dumps(found).encode())]
    assert HttpRetriever(address, 5.0).retrieve(["a"], 5) == [[Passage("Ghana", "Accra is\nthe capital"), Passage("T", "x")]]
    script[:] = [(400, b"{}"), (200, json.dumps(found).encode())]
    with pytest.raises(EnvironmentFault, match="400"):
        HttpRetriever(address, 5.0).retrieve(["a"], 5)


def test_a_huge_answer_is_a_fault(scripted: tuple[str, list[tuple[int, bytes]]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retriever_client, "MAX_REPLY_BYTES", 1000)
    address, script = scripted
    script.append((200, b" " * 5000))
    with pytest.raises(EnvironmentFault, match="longer than 1000 bytes"):
        HttpRetriever(address, 5.0).retrieve(["a"], 1)


# Corpus files


def test_corpus_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    rows = [{"title": "A", "text": "one"}, {"contents": "B\ntwo\nlines"}, {"title": "A", "text": "one"}, {"id": 3}]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_passages(path) == (Passage("A", "one"), Passage("B", "two lines"))
    path.write_text('{"id": 3}')
    with pytest.raises(ConfigError, match="no passage"):
        read_passages(path)
    path.write_text("[1")
    with pytest.raises(ConfigError, match="JSON"):
        read_passages(path)
    with pytest.raises(ConfigError, match="does not exist"):
        read_passages(tmp_path / "none.jsonl")
