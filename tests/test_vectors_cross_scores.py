"""Mutual information agrees with numbers computed independently from the definitions."""

import json
from pathlib import Path

import pytest

from ragen2.diagnostics import mutual_information

VECTORS = Path(__file__).resolve().parents[2] / "shared" / "vectors" / "cross_scores.json"


@pytest.mark.skipif(not VECTORS.exists(), reason="shared/vectors is not beside this checkout")
def test_every_key_of_every_vector() -> None:
    cases = json.loads(VECTORS.read_text())
    assert len(cases) >= 20
    for number, case in enumerate(cases):
        got = mutual_information(case["sum_logprob"], case["lengths"], case["source"], case["prompt_class"])
        assert set(got) == set(case["expected"])
        for key, value in case["expected"].items():
            assert got[key] == pytest.approx(value, rel=1e-9, abs=1e-9), f"case {number}: {key}"
