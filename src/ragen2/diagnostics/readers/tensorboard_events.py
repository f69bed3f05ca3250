"""TensorBoard event files, read record by record; a file that breaks off is read up to there."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen2.diagnostics.readers.columns import Columns, require_readings
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.to_series import to_run_series
from ragen2.errors import MissingDependency, StorageError

SOURCE = "tensorboard"
HEADER = 12
"""Bytes: the length of a record (64 bits, little endian) and its checksum."""
FOOTER = 4
LARGEST_RECORD = 64 << 20
"""Bytes. Images and graphs can be large; a length beyond this is a broken file."""
VERSION = b"brain.Event:"


def is_event_file(start: bytes) -> bool:
    """Whether a file that begins like this is an event file: its first record names the version of the format."""
    return len(start) > HEADER and VERSION in start[HEADER : HEADER + 64] and _length(start) < 1024


def read_tensorboard(paths: Sequence[Path], mapping: Mapping[str, str] | None = None) -> RunSeries:
    """Series of the event files of one run, in order.

    Raises StorageError without scalars, MissingDependency without the library.
    """
    try:
        event_type: Any = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
    except ImportError as error:
        raise MissingDependency("tensorboard", "logs", "reading TensorBoard event files") from error
    from google.protobuf.message import DecodeError

    columns = Columns(mapping)
    columns.skipped.unit = "record"
    number = 0
    for path in paths:
        for data in _records(path, columns):
            number += 1
            event = event_type()
            try:
                event.ParseFromString(data)
            except DecodeError:
                columns.skipped.add("a record that is no event", number)
                continue
            scalars = [(value.tag, _scalar(value)) for value in event.summary.value]
            found = [(tag, value) for tag, value in scalars if value is not None]
            if found and columns.begin(int(event.step), number):
                for tag, value in found:
                    if columns.wants(tag):
                        columns.add(int(event.step), tag, value)
    require_readings(columns, ", ".join(str(path) for path in paths[:3]), "scalar")
    return to_run_series(columns, SOURCE)


def _length(start: bytes) -> int:
    return struct.unpack("<Q", start[:8])[0]


def _records(path: Path, columns: Columns) -> Iterator[bytes]:
    count = 0
    try:
        with open(path, "rb") as file:
            while header := file.read(HEADER):
                length = _length(header) if len(header) == HEADER else LARGEST_RECORD + 1
                data = file.read(length) if length <= LARGEST_RECORD else b""
                if length > LARGEST_RECORD or len(data) < length or len(file.read(FOOTER)) < FOOTER:
                    columns.notes.append(f"{path.name} breaks off or is broken after record {count}; the rest was not read")
                    return
                count += 1
                yield data
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error


def _scalar(value: Any) -> float | None:
    """The number of a summary value: plain, or a tensor of one number; None for images, texts and histograms."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or any(dim.size != 1 for dim in value.tensor.tensor_shape.dim):
        return None
    tensor = value.tensor
    for numbers in (tensor.float_val, tensor.double_val, tensor.int64_val, tensor.int_val):
        if len(numbers) == 1:
            return float(numbers[0])
    form = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}.get(tensor.dtype)
    if form is None or struct.calcsize(form) != len(tensor.tensor_content):
        return None
    return float(struct.unpack(form, tensor.tensor_content)[0])
