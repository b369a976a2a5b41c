"""Checkpoints: whole or absent, the newest wins, old ones are deleted."""

import shutil

import pytest

from agent_layer.settings import Settings
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor


@pytest.fixture
def shelf(tmp_path):
    return CheckpointDirectory(Settings(dir=tmp_path), "r")


def write_some(text):
    return lambda directory: (directory / "weights").write_text(text)


def test_the_newest_checkpoint_is_found_with_its_cursor(shelf):
    assert shelf.newest() is None
    cursor = Cursor(step=12, policy_version=None, open_positions=[3, 4], success_rates={"t": 0.5}, taken=["g"])

    shelf.save(Cursor(step=9), write_some("old"))
    shelf.save(cursor, write_some("new"))

    directory, found = shelf.newest()
    assert (found, (directory / "weights").read_text()) == (cursor, "new")


def test_whoever_dies_while_writing_leaves_the_one_before(shelf):
    shelf.save(Cursor(step=1), write_some("whole"))

    def die(directory):
        (directory / "weights").write_text("half")
        raise KeyboardInterrupt

    for step in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            shelf.save(Cursor(step=step, taken=["never"]), die)

    directory, found = shelf.newest()
    assert (found, (directory / "weights").read_text()) == (Cursor(step=1), "whole")
    shelf.save(Cursor(step=1), write_some("again"))
    assert [(directory / "weights").read_text() for directory, _ in shelf.all()] == ["again"]


def test_old_checkpoints_go(shelf):
    for step in range(1, 5):
        shelf.save(Cursor(step=step), write_some("w"))

    shelf.keep_newest(2)

    assert shelf.newest()[1].step == 4
    assert len(list(shelf.newest()[0].parent.iterdir())) == 2


def kill_after_removing(first, monkeypatch, act):
    """Act until the file of this name is removed."""

    def remove(directory, **_):
        if (directory / first).exists():
            (directory / first).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(shutil, "rmtree", remove)
        with pytest.raises(KeyboardInterrupt):
            act()


@pytest.mark.parametrize("first", ["weights", "cursor.json"])
def test_a_trainer_that_dies_while_it_deletes_a_checkpoint_starts_again(shelf, monkeypatch, first):
    for step in (1, 2, 3):
        shelf.save(Cursor(step=step), write_some("w"))

    kill_after_removing(first, monkeypatch, lambda: shelf.keep_newest(2))

    assert [cursor.step for _, cursor in shelf.all()] == [2, 3]
    shelf.keep_newest(1)
    assert [(directory / "weights").read_text() for directory, _ in shelf.all()] == ["w"]
    assert len(list(shelf.newest()[0].parent.iterdir())) == 1


@pytest.mark.parametrize("first", ["weights", "cursor.json"])
def test_a_trainer_that_dies_while_it_saves_a_step_again_has_it_whole(shelf, monkeypatch, first):
    shelf.save(Cursor(step=1), write_some("old"))

    kill_after_removing(first, monkeypatch, lambda: shelf.save(Cursor(step=1, taken=["g"]), write_some("new")))

    directory, cursor = shelf.newest()
    assert (cursor.taken, (directory / "weights").read_text()) == (["g"], "new")
    assert shelf.find(1) == directory
