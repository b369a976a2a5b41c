"""Replaced files: whole or untouched, readable for whom they are meant."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_layer.infra import make_beside, replace_file
from agent_layer.infra.objects.filesystem import DirectoryObjects

from ...waiting import read_line


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


FILL = """
import sys, time
from pathlib import Path
from agent_layer.infra import make_beside
with make_beside(Path(sys.argv[1])) as beside:
    (beside / "half").write_text("half")
    print(beside, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_left_beside_a_directory_goes_with_the_next_and_nothing_else_does(tmp_path: Path) -> None:
    target = tmp_path / "out[1]"
    others = {tmp_path / name for name in (".out[1].backup", ".out[1]", ".out1." + "0" * 26, ".out[1]." + "0" * 25)}
    for other in others:
        other.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / (".out[1]." + "1" * 26)).symlink_to(elsewhere)
    killed, alive = (
        subprocess.Popen([sys.executable, "-c", FILL, str(target)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    try:
        left, filled = (Path(read_line(one).strip()) for one in (killed, alive))
        killed.kill()
        killed.wait()
        assert left.is_dir()

        with make_beside(target) as beside:
            assert not left.exists()
            assert (filled / "half").is_file(), "it is being filled"
            beside.rename(target)

        kept = {*others, elsewhere, tmp_path / (".out[1]." + "1" * 26)}
        assert {*tmp_path.iterdir()} == kept | {target, filled}
    finally:
        alive.kill()
        for one in (killed, alive):
            one.communicate()


def test_what_an_export_replaced_is_kept_until_there_is_another(tmp_path: Path) -> None:
    replaced = tmp_path / (".out." + "0" * 26 + ".old")
    replaced.mkdir()
    with make_beside(tmp_path / "out") as beside:
        assert replaced.exists()
        beside.rename(tmp_path / "out")
    with make_beside(tmp_path / "out"):
        assert not replaced.exists()
