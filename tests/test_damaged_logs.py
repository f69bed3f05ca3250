"""Damaged, foreign, packed and hostile files: a named error or a partial reading, never a traceback."""

import gzip
import json
import os
import random

import pytest
from sample_logs import entry, state, verl_log, wandb, write

from ragen2.diagnostics import diagnose
from ragen2.diagnostics.readers import read_log, recognise
from ragen2.errors import Ragen2Error, StorageError


def test_what_is_no_file_to_read(tmp_path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        read_log(tmp_path / "nothing")
    with pytest.raises(StorageError, match="is empty"):
        read_log(write(tmp_path, "", "empty"))
    with pytest.raises(StorageError, match="cannot read"):
        read_log("a\x00b")
    with pytest.raises(StorageError, match="a character device"):
        read_log("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="is a pipe"):
        read_log(tmp_path / "pipe")
    with pytest.raises(StorageError, match="gunzip -c"):
        read_log(write(tmp_path, gzip.compress(verl_log().encode()), "train.log.gz"))
    with pytest.raises(StorageError, match="iconv"):
        read_log(write(tmp_path, verl_log().encode("utf-16"), "utf16.log"))
    with pytest.raises(StorageError, match="binary"):
        read_log(write(tmp_path, b"\x00" * 1000, "zeros"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path) -> None:
    path = write(tmp_path, verl_log())
    path.chmod(0)
    with pytest.raises(StorageError, match="Permission denied"):
        read_log(path)


@pytest.mark.parametrize(
    "text",
    [
        "hello\n",
        "{",
        "{}",
        "[]",
        "null\n",
        "step:\n",
        "step:1 - \n",
        "step:99999999999999999999 - a:1\n",
        "a,b\n1,2\n",
        "step\n1\n2\n",
        "{'loss': }\n",
        '{"log_history": 5}',
        '{"log_history": [[[[[[',
        '{"log_history": [' + '{"a":' * 20_000,
        "{" * 20_000,
        "[" * 50_000,
        '{"step": ' + "1" * 10_000 + "}",
        "\n" * 10_000,
        "\r" * 10_000,
        "," * 10_000,
        '"' * 10_001 + "\n1",
        "\ufeff",
        "step,reward\n",
        "Step,run - x\n",
    ],
)
def test_garbage_is_refused_with_a_named_error(tmp_path, text) -> None:
    with pytest.raises(Ragen2Error) as caught:
        diagnose(write(tmp_path, text))
    assert str(tmp_path) in str(caught.value)


def test_damaged_logs_never_end_in_a_traceback(tmp_path) -> None:
    table = "step,val_success,valid_think_rate\n" + "".join(f"{s},0.{s},0.9\n" for s in range(1, 30))
    samples = [verl_log(), table, wandb(["a"]), state([entry(s) for s in range(1, 20)])]
    samples.append("".join(f"{entry(step)}\n" for step in range(1, 30)))
    rng = random.Random(0)
    counts = {False: 0, True: 0}
    for sample in samples:
        data = sample.encode()
        for _ in range(25):
            damaged = bytearray(data)
            for _ in range(rng.randrange(1, 30)):
                position = rng.randrange(len(damaged))
                change = rng.randrange(3)
                if change == 0:
                    damaged[position] = rng.randrange(256)
                elif change == 1:
                    del damaged[position : position + rng.randrange(1, 40)]
                else:
                    damaged[position:position] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40)))
                if not damaged:
                    break
            path = write(tmp_path, bytes(damaged))
            refused = False
            try:
                found = json.dumps(diagnose(path).to_json())
            except Ragen2Error as error:
                refused, found = True, str(error)
            assert found
            counts[refused] += 1
    # Most damage costs some readings, not the whole log.
    assert counts[False] > counts[True]


def test_a_mixed_file_is_read_as_what_holds_most(tmp_path) -> None:
    mixed = "step,reward\n1,2\n" + "".join(f"{entry(step)}\n" for step in range(5)) + verl_log()
    # The first line is a whole table's header and the second a row of it.
    assert recognise(write(tmp_path, mixed)) == "verl csv"
    assert any("not 2 cells" in note for note in read_log(tmp_path / "run.txt").notes)
    dicts = "".join(f"{entry(step)}\n" for step in range(5)) + verl_log()
    assert recognise(write(tmp_path, dicts, "b")) == "verl console"
