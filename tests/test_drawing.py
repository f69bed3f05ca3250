"""Pictures of the grid environments, and the files they are written to."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragen2
from ragen2.envs.drawing import CELL, INK, PAPER, Canvas, Tile, draw_symbols, write
from ragen2.errors import ConfigError, UnknownName
from ragen2.reports.gif import gif_bytes
from ragen2.reports.png import png_bytes, png_uri

GRIDS: list[tuple[str, dict[str, Any], str, tuple[int, int]]] = [
    ("frozen-lake", {"slip": 0.0}, "Down", (4, 4)),
    ("sokoban", {"size": 6}, "Up", (6, 6)),
    ("sokoban", {"size": 5, "border": False}, "Up", (5, 5)),
    ("2048", {"size": 5}, "Left", (5, 5)),
    ("pocket-cube", {}, "R", (6, 8)),
    ("spatial", {"rows": 2, "cols": 4}, "look north", (2, 4)),
]


@pytest.mark.parametrize(("id", "options", "action", "cells"), GRIDS)
def test_pictures_come_on_request_and_change_nothing_else(
    id: str, options: dict[str, Any], action: str, cells: tuple[int, int]
) -> None:
    plain, drawing = ragen2.make(id, **options), ragen2.make(id, render="rgb_array", **options)
    pictures = set()
    for seed in range(6):
        shown, drawn = plain.reset(seed, seed), drawing.reset(seed, seed)
        for _ in range(4):
            assert shown.image is None
            assert drawn.image is not None
            assert (drawn.image.shape, drawn.image.dtype) == ((cells[0] * CELL, cells[1] * CELL, 3), np.uint8)
            assert shown.text == drawn.text
            pictures.add(drawn.image.tobytes())
            shown, drawn = plain.step(action).observation, drawing.step(action).observation
    assert len(pictures) > 5
    assert plain.instructions == drawing.instructions
    with pytest.raises(UnknownName, match="rgb_array"):
        ragen2.make(id, render="ascii", **options)


def test_equal_boards_give_equal_pictures_and_a_move_shows() -> None:
    env = ragen2.make("frozen-lake", board=["SFG"], slip=0.0, render="rgb_array")
    before, again = env.reset(0, 0).image, env.reset(9, 9).image
    after = env.step("Right").observation.image
    assert before is not None and again is not None and after is not None
    assert np.array_equal(before, again)
    changed = (before != after).any(axis=(0, 2))
    assert changed[: 2 * CELL].any()
    assert not changed[2 * CELL :].any()


def test_tiles() -> None:
    canvas = Canvas(1, 2)
    canvas.tile(0, 0, Tile((10, 20, 30), disc=(200, 0, 0), frame=(0, 200, 0), word="7", ink=(1, 2, 3)))
    part = canvas.image[:, :CELL]
    assert {(10, 20, 30), (200, 0, 0), (0, 200, 0), (1, 2, 3)} <= {tuple(pixel) for pixel in part.reshape(-1, 3).tolist()}
    assert (canvas.image[:, CELL:] == PAPER).all()
    canvas.bar(0, 1, "west")
    assert (canvas.image[:, CELL : CELL + 2] == INK).all()
    with pytest.raises(KeyError):
        draw_symbols(["?"], {})


@settings(deadline=None)
@given(st.text(max_size=30), st.integers(8, 60), st.integers(8, 60))
def test_any_word_stays_inside_its_picture(word: str, height: int, width: int) -> None:
    image = np.zeros((height + 8, width + 8, 3), np.uint8)
    write(image[4:-4, 4:-4], word, (255, 255, 255))
    assert not image[:4].any() and not image[-4:].any()
    assert not image[:, :4].any() and not image[:, -4:].any()


def test_words_differ_and_all_digits_have_their_own_glyph() -> None:
    drawn = set()
    for word in [*"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", "12", "21", "64"]:
        image = np.zeros((20, 20, 3), np.uint8)
        write(image, word, (255, 255, 255))
        assert image.any()
        drawn.add(image.tobytes())
    assert len(drawn) == 39


def images(seed: int, count: int, height: int, width: int, colours: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, (colours, 3)).astype(np.uint8)
    return [palette[rng.integers(0, colours, (height, width))] for _ in range(count)]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 40))
def test_png_holds_the_pixels(seed: int, height: int, width: int) -> None:
    (image,) = images(seed, 1, height, width, 9)
    data = png_bytes(image)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBB", chunks[b"IHDR"][:10]) == (width, height, 8, 2)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    assert np.array_equal(lines[:, 1:].reshape(height, width, 3), image)
    assert png_uri(image).startswith("data:image/png;base64,iVBOR")


@pytest.mark.parametrize("bad", [np.zeros((3, 3), np.uint8), np.zeros((3, 3, 3)), np.zeros((0, 3, 3), np.uint8)])
def test_png_refuses_what_is_no_picture(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="uint8 of shape"):
        png_bytes(bad)


@pytest.mark.parametrize(("colours", "height", "width"), [(1, 3, 3), (2, 5, 7), (5, 200, 150), (17, 64, 64), (250, 130, 120)])
def test_gif_holds_the_pixels(colours: int, height: int, width: int) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the GIF back")
    wanted = images(colours, 3, height, width, colours)
    read = image.open(io.BytesIO(gif_bytes(wanted, delay_ms=500)))
    assert read.n_frames == 3
    for place in range(read.n_frames):
        read.seek(place)
        assert np.array_equal(np.array(read.convert("RGB")), wanted[place])
    assert read.info["duration"] == 500


def test_gif_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(ConfigError, match="0 images"):
        gif_bytes([])
    with pytest.raises(ConfigError, match="one size"):
        gif_bytes([np.zeros((2, 2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8)])
    many = np.stack([np.arange(400) % 256, np.arange(400) // 256, np.zeros(400)], axis=1).astype(np.uint8).reshape(20, 20, 3)
    with pytest.raises(ConfigError, match="400 colours"):
        gif_bytes([many])
