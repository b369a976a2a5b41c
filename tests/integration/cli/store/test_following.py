"""``store export parquet --follow``: in the end the dataset equals the query's result."""

import os
import random
import signal
import subprocess
import sys
import time

import pyarrow.parquet
import pytest

from agent_layer.export import dataset
from agent_layer.export.dataset import Dataset, DatasetPlan
from agent_layer.export.dataset_writer import DatasetWriter
from agent_layer.export.feed import Feed
from agent_layer.recorder import open_recorder
from agent_layer.store import open_store
from agent_layer.store.arrow.trajectories import TRAJECTORY_SCHEMA, read_rows
from agent_layer.store.index.deletion import apply_tombstones

from ....waiting import wait_for_exit


@pytest.fixture
def follow(settings, tmp_path):
    """``follow()`` starts an exporter into ``tmp_path / "d"``."""
    started = []

    def follow(*arguments):
        command = [sys.executable, "-m", "agent_layer.cli", "store", "export", "parquet", tmp_path / "d", "--follow"]
        environment = {**os.environ, **settings.environment()}
        process = subprocess.Popen(
            [*map(str, command), *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield follow
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def table_in(directory, name):
    return pyarrow.parquet.read_table(directory / name)


def rewards_in(directory):
    """Return reward by trajectory; check that no trajectory appears twice and that the steps belong to them."""
    rows = read_rows(table_in(directory, "trajectories").select(TRAJECTORY_SCHEMA.names))
    assert len({row.trajectory_id for row in rows}) == len(rows)
    return {row.trajectory_id: row.reward for row in rows}


def steps_in(directory):
    rows = table_in(directory, "steps").select(["trajectory_id", "index", "rollout_reward"]).to_pylist()
    assert len({(row["trajectory_id"], row["index"]) for row in rows}) == len(rows)
    return {(row["trajectory_id"], row["index"]): row["rollout_reward"] for row in rows}


def is_begun(directory):
    """Whether both tables have a file."""
    return all(any((directory / name).glob("*.parquet")) for name in ("trajectories", "steps"))


def agrees(directory, store, **filters):
    """Whether the dataset is what the store answers."""
    if not is_begun(directory):
        return False
    rows = list(store.scan(**filters))
    rewards = {row.trajectory_id: row.reward for row in rows}
    steps = {(row.trajectory_id, index): row.reward for row in rows for index in range(row.num_steps)}
    return rewards_in(directory) == rewards and steps_in(directory) == steps


def test_what_ends_and_what_is_judged_later_arrives(record, make_attempt, follow, settings, wait_until, tmp_path):
    record(make_attempt("x.0-0"))
    store, exporter = open_store(settings), follow("--reward", "0.5..")
    wait_until(lambda: agrees(tmp_path / "d", store, reward=(0.5, None)))

    record(make_attempt("x.1-0", score=None), make_attempt("x.2-0", score=1.0))
    store.reward("x.1-0", 0.5)
    store.reward("x.0-0", 0.0)

    wait_until(lambda: sorted(rewards_in(tmp_path / "d").items()) == [("x.1-0", 0.5), ("x.2-0", 1.0)])
    exporter.send_signal(signal.SIGINT)
    assert wait_for_exit(exporter) == 0
    assert agrees(tmp_path / "d", store, reward=(0.5, None))


def test_two_exporters_of_one_directory_are_one_too_many(follow, agent_layer, wait_until, tmp_path):
    follow()
    wait_until((tmp_path / "d" / "dataset.json").exists)

    status, _, err = agent_layer("store", "export", "parquet", tmp_path / "d", "--follow")

    assert status == 2
    assert "another export is writing it" in err


def test_killed_at_any_moment_nothing_is_lost_and_nothing_is_there_twice(
    record, make_attempt, follow, settings, wait_until, tmp_path
):
    store, num_made = open_store(settings), 0

    def make():
        nonlocal num_made
        record(*(make_attempt(f"x.{num_made + n}-0", at=100.0 + num_made + n) for n in range(20)))
        num_made += 20

    exporter = follow()
    make()
    wait_until(lambda: is_begun(tmp_path / "d") and "x.19-0" in rewards_in(tmp_path / "d"))
    for _ in range(3):
        make()
        store.reward(f"x.{random.randrange(num_made)}-0", random.random())
    time.sleep(random.uniform(0.0, 0.5))  # a random moment
    exporter.kill()
    wait_for_exit(exporter)

    exporter = follow()
    assert open_recorder(settings).flush().pending == 0
    record(make_attempt(f"x.{num_made}-0", at=100.0 + num_made))  # so that it is this exporter that makes them agree
    wait_until(lambda: agrees(tmp_path / "d", store))
    exporter.send_signal(signal.SIGTERM)
    assert wait_for_exit(exporter) == 0, exporter.stderr.read().decode()
    assert not list((tmp_path / "d").rglob(".unfinished-*"))


def test_what_is_deleted_leaves_the_dataset(record, make_attempt, keep, settings, tmp_path):
    record(*(make_attempt(f"x.{n}-0", at=100.0 + n) for n in range(3)))
    keep()
    store = open_store(settings)

    apply_tombstones(store.redis, store.keys, ["x.1-0"], 1.0)
    keep()

    assert sorted(rewards_in(tmp_path / "d")) == ["x.0-0", "x.2-0"]
    assert agrees(tmp_path / "d", store)


class Killed(BaseException):
    """Stands for a kill: nothing of ours may catch it."""


@pytest.fixture
def keep(settings, tmp_path, monkeypatch):
    """``keep()`` fills the dataset and enters changes, and tells whether it was not stopped before.

    ``die_at=n`` dies before the n-th file takes its place.
    """

    place = dataset.PartFiles._write
    monkeypatch.setattr("agent_layer.export.dataset._FULL_BYTES", 40_000)  # several parts
    monkeypatch.setattr("agent_layer.export.feed._LINGER_SECONDS", 0.0)

    def keep(die_at=None, *, is_stopped=lambda: False):
        left = [die_at]

        def write(parts, number, table):
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            place(parts, number, table)

        monkeypatch.setattr(dataset.PartFiles, "_write", write)
        store = open_store(settings)
        plan = DatasetPlan(tables=["trajectories", "steps"], contents=False, filters={})
        with Dataset(tmp_path / "d", plan, 0.0) as kept:
            feed = Feed(store, kept)
            keeper = DatasetWriter(store, feed, kept, contents=False, step=None, on_corrupt=lambda _: None)
            if not feed.resume() and keeper.write_all(is_stopped=is_stopped) is None:
                return False
            while keeper.write_changes(0.01):
                pass
            return True

    return keep


def test_who_stops_it_behind_its_last_part_is_told_that_all_is_written(
    record, make_attempt, keep, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr("agent_layer.export.dataset_writer._BATCH", 4)
    store = open_store(settings)
    record(*(make_attempt(f"x.{n}-0", at=100.0 + n) for n in range(8)))

    assert not keep(is_stopped=lambda: is_begun(tmp_path / "d") and len(rewards_in(tmp_path / "d")) >= 4)
    assert len(rewards_in(tmp_path / "d")) == 4
    assert keep(is_stopped=lambda: len(rewards_in(tmp_path / "d")) == 8)
    assert agrees(tmp_path / "d", store)


@pytest.mark.parametrize("die_at", range(9))
def test_dying_before_any_file_is_replaced_is_made_good(record, make_attempt, keep, settings, tmp_path, die_at):
    store = open_store(settings)
    record(*(make_attempt(f"x.{n}-0", at=100.0 + n) for n in range(8)))
    keep()
    store.reward("x.1-0", 0.25)
    assert open_recorder(settings).flush().pending == 0
    record(*(make_attempt(f"y.{n}-0", at=200.0 + n) for n in range(4)))

    try:
        keep(die_at)
    except Killed:
        assert len(rewards_in(tmp_path / "d")) >= 8
    keep()

    assert agrees(tmp_path / "d", store)
    assert rewards_in(tmp_path / "d")["x.1-0"] == 0.25
