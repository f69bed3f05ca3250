"""WebShop: shops read from files of the published data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("bm25s", reason="webshop searches with bm25s (extra search)")

import ragen2
from ragen2.envs import check_env
from ragen2.envs.splits import split_of
from ragen2.envs.webshop import WebShop
from ragen2.envs.webshop_files import read_shop_files
from ragen2.envs.webshop_solver import fits
from ragen2.errors import ConfigError, Ragen2Error

# Files of the published data set


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def item(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "asin": f"B0{number:04d}",
        "name": f"Acme Soft Cotton Shirt {number}",
        "query": "shirts",
        "product_category": "Clothing › Men › Shirts",
        "full_description": "A shirt.",
        "small_description": ["Machine wash", "Long sleeve"],
        "pricing": "$12.50$19.99",
        "customization_options": {
            "Color": [{"value": "Red/White"}, {"value": "Blue"}],
            "Size": [{"value": "Small"}],
            "Fit": None,
        },
        **changes,
    }


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path, Path]:
    items = [item(number) for number in range(60)]
    items += [item(3), item(61, asin="nan!"), item(62, name=""), "junk", item(63, pricing="free")]
    machine = {f"B0{number:04d}": {"attributes": ["machine wash", "soft"]} for number in range(60)}
    human: dict[str, Any] = {
        f"B0{number:04d}": [
            {
                "instruction": f"Find me shirt number {number} that is soft.",
                "instruction_attributes": ["machine wash", "soft"],
                "instruction_options": ["red | white", "small"] if number % 2 else {"color": "blue", "Size": "small"},
            }
        ]
        for number in range(60)
    }
    human["B00000"].append({"instruction": "no attributes", "instruction_attributes": [], "instruction_options": []})
    human["B00001"].append({"instruction": "not sold", "instruction_attributes": ["soft"], "instruction_options": ["purple"]})
    human["B00002"].append(human["B00002"][0])
    human["B09999"] = [{"instruction": "who", "instruction_attributes": ["soft"], "instruction_options": []}]
    return write(tmp_path / "items.json", items), write(tmp_path / "ins.json", machine), write(tmp_path / "human.json", human)


def test_published_files_are_read_and_what_is_dropped_is_counted(data: tuple[Path, Path, Path]) -> None:
    items, machine, human = data
    read = read_shop_files(items, [machine, human])
    assert len(read.products) == 60 and len(read.goals) == 60
    assert dict(read.dropped) == {
        "items without id, name or price": 4,
        "items with the id of an earlier one": 1,
        "instructions without text or attributes": 1,
        "goals that their own product does not fulfil": 1,
        "goals with the instruction of an earlier one": 1,
        "instructions for no product": 1,
    }
    assert "1 instructions without text" in read.remark
    product = read.products[0]
    assert product.options == {"color": ("red | white", "blue"), "size": ("small",)}
    assert (product.price, product.categories) == (12.5, ("clothing", "men", "shirts"))
    assert product.attributes == ("machine wash", "soft")
    assert read.goals[0].price_limit == 30.0 and "price lower than 30 dollars" in read.goals[0].instruction
    assert read.goals[1].options == (("", "red | white"), ("", "small"))
    assert read.goals[0].options == (("color", "blue"), ("size", "small"))
    assert all(fits(read.products[index], goal) for index, goal in enumerate(read.goals))


def test_the_split_does_not_depend_on_the_order_of_the_files(data: tuple[Path, Path, Path], tmp_path: Path) -> None:
    items, machine, human = data
    listed = json.loads(items.read_text())
    told = json.loads(human.read_text())
    rng = np.random.default_rng(0)
    shuffled = write(tmp_path / "shuffled.json", [listed[i] for i in rng.permutation(len(listed))])
    keys = list(told)
    mixed = write(tmp_path / "mixed.json", {keys[i]: told[keys[i]] for i in rng.permutation(len(keys))})
    for first, second in ((items, human), (shuffled, mixed)):
        env = WebShop("validation", items_file=first, instruction_files=[machine, second])
        seen = set()
        for seed in range(80):
            env.reset(seed, 0)
            seen.add(env.content())
        assert all(split_of(content) == "validation" for content in seen)
        assert seen == {goal.content for goal in env.shop.goals if split_of(goal.content) == "validation"}


def test_a_shop_of_files_is_played_by_the_solver(data: tuple[Path, Path, Path]) -> None:
    items, machine, human = data
    env, rng = WebShop(items_file=items, instruction_files=[machine, human]), np.random.default_rng(0)
    assert env.shop.files is not None
    for seed in range(15):
        env.reset(seed, 0)
        result = env.step(env.demonstrate(rng, 1.0, 1).actions[0])
        while not result.done:
            result = env.step(env.demonstrate(rng, 1.0, 1).actions[0])
        assert result.reward == 1.0
    assert check_env(ragen2.make("webshop", items_file=str(items), instruction_files=[str(machine), str(human)])).ok


@pytest.mark.parametrize("content", ["{", "[]", "{}", "[1, 2]", '"x"', "[" * 100_000])
def test_broken_files_are_refused(content: str, data: tuple[Path, Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError):
        WebShop(items_file=broken, instruction_files=data[1:])
    with pytest.raises(Ragen2Error):
        WebShop(items_file=data[0], instruction_files=broken)


def test_too_few_goals_for_the_splits_are_refused(data: tuple[Path, Path, Path], tmp_path: Path) -> None:
    one = write(
        tmp_path / "one.json", {"B00001": {"instruction": "a shirt", "instruction_attributes": ["soft"], "attributes": ["soft"]}}
    )
    with pytest.raises(ConfigError, match="split empty"):
        WebShop(items_file=data[0], instruction_files=one)


@pytest.mark.parametrize(
    ("pricing", "price"),
    [
        ("$5.00", 5.0),
        ("$1,234.50", 1234.5),
        ("$9$7", 7.0),
        (None, 100.0),
        ("", 100.0),
        ([], 100.0),
        (12, 12.0),
        (["$3", "$4"], 3.0),
    ],
)
def test_prices_of_the_published_forms(pricing: Any, price: float, tmp_path: Path) -> None:
    items = write(tmp_path / "items.json", [item(1, pricing=pricing, Attributes=["soft"])])
    told = write(tmp_path / "told.json", {"b00001": {"instruction": "a shirt", "instruction_attributes": ["soft"]}})
    assert read_shop_files(items, [told]).products[0].price == price
