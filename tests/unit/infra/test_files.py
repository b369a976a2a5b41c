"""Replaced files: whole or untouched, readable for whom they are meant."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_layer.infra import replace_file
from agent_layer.infra.objects.filesystem import DirectoryObjects


def test_a_write_that_fails_leaves_the_earlier_file_and_nothing_beside_it(tmp_path: Path) -> None:
    def break_off() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is full")

    path = tmp_path / "file"
    replace_file(path, b"earlier")

    with pytest.raises(OSError, match="the disk is full"):
        replace_file(path, break_off())

    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_the_new_content_may_be_read_from_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"1\n2\n")
    with path.open("rb") as earlier:
        replace_file(path, (b"0" + line for line in earlier), sync=True)

    assert path.read_bytes() == b"01\n02\n"


def test_only_files_for_others_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    replace_file(tmp_path / "private", b"")
    replace_file(tmp_path / "public", b"", private=False)

    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_living_process_writes_is_no_remainder_however_old_it_looks(tmp_path: Path) -> None:
    def look() -> Iterator[bytes]:
        (unfinished,) = tmp_path.iterdir()
        os.utime(unfinished, (0, 0))  # as a clock that went ahead shows it
        assert list(objects.list_unfinished("")) == []
        yield b"all of it"

    objects = DirectoryObjects(tmp_path)
    (tmp_path / ".left.0123").write_bytes(b"half")
    assert [entry.key for entry in objects.list_unfinished("")] == [".left.0123"]

    objects.delete(".left.0123")
    replace_file(tmp_path / "file", look())

    assert (tmp_path / "file").read_bytes() == b"all of it"
