"""Animated GIF files from pixel arrays of few colours, such as drawn boards."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ragen2.errors import ConfigError

MOST_COLOURS = 256
_MOST_CODES = 4096


def gif_bytes(images: Sequence[np.ndarray], delay_ms: int = 700) -> bytes:
    """H x W x 3 uint8 arrays of one size as an endless animation, each shown for `delay_ms`.

    Raises ConfigError when there is no image, the sizes differ, or they have more than 256 colours together.
    """
    if not images or len({image.shape for image in images}) != 1:
        raise ConfigError(
            f"{len(images)} images of sizes {sorted({image.shape for image in images})}; a GIF needs some of one size"
        )
    height, width = images[0].shape[:2]
    packed = np.stack(images).astype(np.uint32) @ np.array([65536, 256, 1], dtype=np.uint32)
    colours, numbers = np.unique(packed, return_inverse=True)
    if len(colours) > MOST_COLOURS:
        raise ConfigError(f"the images have {len(colours)} colours; a GIF holds {MOST_COLOURS}. Write an HTML page instead")
    bits = max(2, int(len(colours) - 1).bit_length())
    palette = b"".join(int(colour).to_bytes(3, "big") for colour in colours).ljust(3 << bits, b"\0")
    parts = [b"GIF89a", struct.pack("<HHBBB", width, height, 0xF0 | (bits - 1), 0, 0), palette]
    parts.append(b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")
    for pixels in numbers.reshape(len(images), -1).astype(np.uint8):
        parts.append(b"\x21\xf9\x04\x04" + struct.pack("<H", delay_ms // 10) + b"\x00\x00")
        parts.append(b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + bytes([bits]))
        data = _lzw(pixels.tobytes(), bits)
        parts += [bytes([len(block)]) + block for block in (data[k : k + 255] for k in range(0, len(data), 255))]
        parts.append(b"\x00")
    return b"".join([*parts, b"\x3b"])


def _lzw(pixels: bytes, bits: int) -> bytes:
    """The pixels (palette numbers below 2 ** bits) in the variable-length code of GIF, least significant bit first."""
    clear, end = 1 << bits, (1 << bits) + 1
    first = {bytes([value]): value for value in range(clear)}
    known, size = dict(first), bits + 1
    buffer, filled, out = clear, size, bytearray()
    run = b""

    def put(code: int) -> None:
        nonlocal buffer, filled
        buffer |= code << filled
        filled += size
        while filled >= 8:
            out.append(buffer & 0xFF)
            buffer >>= 8
            filled -= 8

    for value in pixels:
        longer = run + bytes([value])
        if longer in known:
            run = longer
            continue
        put(known[run])
        if len(known) + 2 < _MOST_CODES:
            known[longer] = len(known) + 2
            # The reader is one entry behind, so the code grows when the new number itself no longer fits.
            size += known[longer] >= 1 << size
        else:
            put(clear)
            known, size = dict(first), bits + 1
        run = bytes([value])
    put(known[run])
    put(end)
    return bytes(out) + (bytes([buffer & 0xFF]) if filled else b"")
