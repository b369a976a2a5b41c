"""Files of lines: whatever a writer left, or the disk refused, lines are whole, and the next one is read."""

import errno
import os
import random
import resource
from contextlib import suppress
from itertools import pairwise
from multiprocessing import get_context
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BackPressureError
from agent_layer.infra import LineReader, append_line, lines, read_lines, replace_file


class Line(msgspec.Struct):
    text: str


@given(st.lists(st.text(max_size=30), max_size=4), st.binary(max_size=30).map(lambda torn: torn.replace(b"\n", b"")))
def test_a_torn_last_line_is_skipped_and_mended(tmp_path_factory, texts, torn):
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    whole = b"".join(msgspec.json.encode(Line(text)) + b"\n" for text in texts)
    path.write_bytes(whole + torn)

    assert [line.text for line in read_lines(path, Line)] == texts
    append_line(path, Line("next"))
    assert path.read_bytes() == whole + b'{"text":"next"}\n'


@given(st.binary(max_size=60).map(lambda content: content.replace(b"x", b"\n")), st.lists(st.integers(0, 60)))
def test_a_file_that_grows_piece_by_piece_is_read_as_if_it_were_read_whole(tmp_path_factory, noise, cuts):
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    content = b'{"text":"a"}\n' + noise + b'\n{"text":"b"}\n{"text":"torn'
    reader, found = LineReader(path, Line), []

    for begin, end in pairwise([0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]):
        with path.open("ab") as file:
            file.write(content[begin:end])
        found += reader.read_on()

    assert found == reader.records == read_lines(path, Line)
    assert reader.read_on() == []


def test_only_new_lines_are_read_and_a_replaced_file_from_its_beginning(tmp_path, caplog):
    path = tmp_path / "lines.jsonl"
    reader = LineReader(path, Line)
    assert reader.read_on() == []
    append_line(path, Line("a"))
    append_line(path, Line("b"))
    assert [line.text for line in reader.read_on()] == ["a", "b"]

    with path.open("r+b") as file:
        file.write(b"no record")  # over a line that was read
    append_line(path, Line("c"))
    assert [line.text for line in reader.read_on()] == ["c"]
    assert caplog.records == []

    replace_file(path, b'{"text":"other"}\n')
    assert [line.text for line in reader.read_on()] == ["other"]
    assert [line.text for line in reader.records] == ["other"]
    path.unlink()
    assert reader.read_on() == reader.records == []


@pytest.mark.parametrize("num_bytes", [70_000, 65_536, 200_000])
def test_a_torn_line_longer_than_a_block_is_mended(tmp_path, num_bytes):
    path = tmp_path / "lines.jsonl"
    for kept in (b"", b'{"text":"kept"}\n'):
        path.write_bytes(kept + b"x" * num_bytes)
        append_line(path, Line("next"))
        assert path.read_bytes() == kept + b'{"text":"next"}\n'


def test_lines_of_earlier_versions_that_ran_into_each_other_are_left_out(tmp_path, caplog):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"text":"a"}\n{"text":"b{"text":"c"}\n\0\0\0\n{"other":1}\n\xff\n{"text":"d"}\n')

    for _ in range(2):
        assert [line.text for line in read_lines(path, Line)] == ["a", "d"]
    assert len(caplog.records) == 4


@pytest.mark.parametrize("seed", range(10))
def test_a_disk_that_takes_parts_and_refuses_the_rest_leaves_whole_lines(tmp_path, monkeypatch, seed):
    path, chance, kept = tmp_path / "lines.jsonl", random.Random(seed), []

    def write(descriptor, content):
        if chance.random() < 0.3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(descriptor, content[: chance.randint(1, len(content))])

    def truncate(descriptor, size):
        if chance.random() < 0.3:
            raise OSError(errno.EIO, "Input/output error")
        os.ftruncate(descriptor, size)

    faulty = {name: getattr(os, name) for name in ("fstat", "pread", "close", "open", "O_RDWR", "O_APPEND", "O_CREAT")}
    monkeypatch.setattr(lines, "os", SimpleNamespace(**faulty, write=write, ftruncate=truncate))
    for number in range(50):
        with suppress(BackPressureError):  # anything else is no sentence
            append_line(path, Line(str(number)))
            kept.append(str(number))
        assert [line.text for line in read_lines(path, Line)] == kept
    assert kept


def test_a_full_disk_is_a_sentence_and_the_file_stays_readable(tmp_path):
    path = tmp_path / "lines.jsonl"

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for number in range(100):
            try:
                append_line(path, Line("x" * 100))
            except BackPressureError:
                os._exit(number)

    child = get_context("fork").Process(target=fill)
    child.start()
    child.join()
    append_line(path, Line("next"))

    assert len(read_lines(path, Line)) == child.exitcode + 1


def test_processes_that_append_at_once_mend_nothing_of_each_other(tmp_path):
    path = tmp_path / "lines.jsonl"

    def write(name):
        for number in range(50):
            append_line(path, Line(f"{name}-{number}" + "x" * 5_000))

    writers = [get_context("fork").Process(target=write, args=(name,)) for name in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert len({line.text for line in read_lines(path, Line)}) == 200
