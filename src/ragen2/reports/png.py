"""PNG files from pixel arrays, with the standard library's zlib alone."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_bytes(image: np.ndarray) -> bytes:
    """An H x W x 3 uint8 array as a PNG file. Raises ValueError for any other array."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise ValueError(f"image is {image.dtype} of shape {image.shape}; a PNG is made from uint8 of shape (H, W, 3)")
    height, width = image.shape[:2]
    # Each line begins with its filter: 0, none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, 3 * width)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def png_uri(image: np.ndarray) -> str:
    """The image as a `data:` address for an HTML page."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(image)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
