"""WebShop's search: BM25 over titles, features and descriptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.webshop_catalogue import Product
from ragen2.envs.webshop_reward import words
from ragen2.errors import MissingDependency

MAX_QUERY_WORDS = 24
_TITLE_WEIGHT = 3
"""Times a title is counted in its document: what a product is comes before what its description mentions."""


class ShopSearch:
    """An index of products, read-only once built, so that environments share it. Raises MissingDependency without bm25s."""

    def __init__(self, products: Sequence[Product]) -> None:
        try:
            import bm25s
            from bm25s.tokenization import Tokenized
        except ImportError as error:
            raise MissingDependency("bm25s", "search", "the search of webshop") from error

        documents = [_document(product) for product in products]
        self._vocabulary = {word: number for number, word in enumerate(sorted({word for text in documents for word in text}))}
        ids = [[self._vocabulary[word] for word in text] for text in documents]
        self._index = bm25s.BM25()
        self._index.index(Tokenized(ids=ids, vocab=self._vocabulary), show_progress=False)

    def known_words(self, query: str) -> list[str]:
        """The query's words that some product has, each once, `MAX_QUERY_WORDS` at most."""
        return list(dict.fromkeys(word for word in words(query) if word in self._vocabulary))[:MAX_QUERY_WORDS]

    def find(self, query: str, most: int) -> tuple[int, ...]:
        """Positions of the products that share a word with the query, best first; equal scores in the order of the products."""
        known = self.known_words(query)
        if not known:
            return ()
        scores = self._index.get_scores_from_ids([self._vocabulary[word] for word in known])
        best = np.argsort(-scores, kind="stable")[:most]
        return tuple(int(place) for place in best if scores[place] > 0)


def _document(product: Product) -> list[str]:
    title = words(product.title) * _TITLE_WEIGHT
    rest = " ".join([product.query, *product.features, product.description])
    return title + words(rest)
