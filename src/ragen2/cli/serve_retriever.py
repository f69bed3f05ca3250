"""`ragen2 serve-retriever`: the retriever of searchqa behind HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ragen2.envs.retriever import Retriever

FACTBOOK = "factbook"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("serve-retriever")(serve_retriever)


def serve_retriever(
    corpus: Annotated[
        str, typer.Argument(help="factbook, or a .jsonl, .json or .parquet file with title and text, or of HotpotQA.")
    ] = FACTBOOK,
    host: Annotated[str, typer.Option(help="Address to listen on. Others than 127.0.0.1 let other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    retriever: Annotated[
        str | None, typer.Option(help="A retriever of your own, as package.module:Name; the corpus is not read then.")
    ] = None,
) -> None:
    """Serve passages: POST /retrieve {"queries": [...], "topk": 3}, GET /health. Ctrl-C ends it.

    Use it with: ragen2 play searchqa retriever=http://127.0.0.1:8000
    """
    from ragen2.envs.retriever import open_retriever
    from ragen2.envs.retriever_server import RetrieverServer

    found = _bm25(corpus) if retriever is None else open_retriever(retriever, timeout_s=10.0)
    with RetrieverServer(found, host, port) as server:
        typer.echo(f"serving on {server.address} (POST /retrieve, GET /health)")
        server.serve_forever()


def _bm25(corpus: str) -> Retriever:
    from ragen2.envs.factbook import read_factbook
    from ragen2.envs.retriever_bm25 import Bm25Retriever
    from ragen2.envs.searchqa_files import read_passages

    passages = read_factbook().passages if corpus == FACTBOOK else read_passages(corpus)
    index = Bm25Retriever(passages)
    typer.echo(f"{len(passages)} passages, index ready in {index.seconds:.1f} s")
    return index
