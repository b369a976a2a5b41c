"""The sequence of tasks: each once per epoch, mixed by weights, filtered, and the same after a stop or a kill."""

import random
from collections import Counter

import msgspec
import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.config import SourceConfig
from trainer_adapter.selection import Labelled, SuccessBetween, SuccessRamp
from trainer_adapter.tasks.journal import DrawJournal
from trainer_adapter.tasks.mix import MixFile
from trainer_adapter.tasks.source import open_sources
from trainer_adapter.tasks.state import StreamState
from trainer_adapter.tasks.stream import TaskStream


@pytest.fixture
def write(tmp_path):
    """``write(name, num)``: a source of ``num`` tasks, every third one labelled hard."""

    def write(name, num, **options):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(
            b"".join(
                msgspec.json.encode(
                    {"id": f"{name}{at}", "input": at, "labels": {"kind": "easy" if at % 3 else "hard"}}
                )
                + b"\n"
                for at in range(num)
            )
        )
        return SourceConfig(path=path, **options)

    return write


@pytest.fixture
def begin(tmp_path):
    """``begin(source, …, run=…, state=…, num_asked=…)``: the stream of a trainer that starts."""

    def begin(*configs, run="r", state=None, num_asked=0, **options):
        return TaskStream(
            open_sources(list(configs), tmp_path / "tasks", run="r", seed=7),
            state or StreamState(),
            mix=MixFile(tmp_path / run / "mix.json"),
            journal=DrawJournal(tmp_path / run / "draws.jsonl", num_asked),
            **options,
        )

    return begin


def ids(stream, positions, rates=None):
    return [stream.read(stream.draw(position, rates or {})).id for position in positions]


def test_every_task_comes_once_per_epoch_in_another_order_each_time(write, begin):
    drawn = ids(begin(write("a", 10)), range(30))

    epochs = [drawn[at : at + 10] for at in (0, 10, 20)]
    assert all(sorted(epoch) == sorted(f"a{at}" for at in range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_an_order_is_the_seeds(write, tmp_path):
    def order(seed):
        (source,) = open_sources([write("a", 10)], tmp_path / "tasks", run="r", seed=seed)
        return [source.read(0, index).id for index in range(20)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_sources_come_by_weight_and_each_keeps_its_own_order(write, begin):
    a, b = write("a", 4, weight=3), write("b", 4)
    drawn = ids(begin(a, b), range(40))

    assert Counter(name[0] for name in drawn) == {"a": 30, "b": 10}
    assert [name for name in drawn if name[0] == "a"] == ids(begin(a, run="alone"), range(30))


def test_a_changed_mix_counts_from_the_next_position_on(write, begin, tmp_path):
    stream = begin(write("a", 4), write("b", 4))
    before = ids(stream, range(10))

    MixFile(tmp_path / "r" / "mix.json").change({"a": 0.0})

    assert Counter(name[0] for name in before) == {"a": 5, "b": 5}
    assert {name[0] for name in ids(stream, range(10, 20))} == {"b"}


def test_a_filter_leaves_tasks_out_and_tries_them_again_in_some_turns(write, begin):
    rates = {f"a{at}": 1.0 if at < 5 else 0.5 for at in range(10)}

    never = ids(begin(write("a", 10), filters=[SuccessBetween(retry=0.0)]), range(200), rates)
    again = ids(begin(write("a", 10), filters=[SuccessBetween(retry=0.2)], seed=1), range(1000, 3000), rates)

    assert {name for name in never if rates[name] == 1.0} == set()
    assert 0.13 < sum(rates[name] == 1.0 for name in again) / len(again) < 0.2  # 0.2 of 1.2


def test_filters_that_leave_nothing_are_an_error(write, begin):
    stream = begin(write("a", 10), filters=[Labelled(label="kind", values=["absurd"])])

    with pytest.raises(BadInputError, match="source 'a': expected a task to train"):
        stream.draw(0, {})


class Trainer:
    """Submits and learns one task after another; what it learns depends on the draw alone."""

    def __init__(self, start):
        self.start = start
        self.saved = (StreamState(), 0, {})
        self.submitted = {}
        self.kill()

    def kill(self):
        """Start again from the newest checkpoint."""
        state, self.position, rates = self.saved
        self.rates = dict(rates)
        self.stream = self.start(state, self.position)

    def step(self):
        draw = self.stream.draw(self.position, self.rates)
        assert self.submitted.setdefault(self.position, draw) == draw
        self.position += 1
        self.rates[draw.task_id] = (draw.index * 7919 % 11) / 10
        self.stream.observe(draw, self.rates[draw.task_id])

    def checkpoint(self):
        self.saved = (self.stream.state(), self.position, dict(self.rates))
        self.stream.forget_draws()


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_is_killed_anywhere_submits_what_an_uninterrupted_one_does(write, begin, tmp_path, seed):
    ramp = SuccessRamp(above=0.3, groups=4)
    sources = [write("a", 7, weight=2), write("b", 5), SourceConfig(taskset="repair", count=3, ramp=ramp)]
    changes = {30: {"b": 4.0}, 70: {"a": 0.0}}

    def submit(run, chance):
        def start(state, num_asked):
            filters = [SuccessBetween(low=0.15, high=0.95, retry=0.3)]
            return begin(*sources, run=run, state=state, num_asked=num_asked, filters=filters, seed=3)

        trainer, todo = Trainer(start), dict(changes)
        while trainer.position < 120:
            if (change := todo.pop(trainer.position, None)) is not None:
                MixFile(tmp_path / run / "mix.json").change(change)
            trainer.step()
            match chance():
                case part if part < 0.1:
                    trainer.checkpoint()
                case part if part < 0.2:
                    trainer.kill()
        return [trainer.submitted[position] for position in range(120)]

    uninterrupted = submit("calm", lambda: 1.0)

    assert submit("killed", random.Random(seed).random) == uninterrupted
    assert max(draw.level for draw in uninterrupted) > 0
    assert {draw.source for draw in uninterrupted[70:]} == {"b", "repair"}


def test_a_torn_last_line_of_the_journal_was_never_submitted(write, begin, tmp_path):
    source = write("a", 10)
    before = ids(begin(source), range(4))
    path = tmp_path / "r" / "draws.jsonl"
    path.write_bytes(path.read_bytes()[:-5])

    assert ids(begin(source), range(4)) == before
    assert ids(begin(source), range(4)) == before


def test_a_task_set_moves_to_its_next_level_when_one_is_mastered_and_the_level_survives(begin):
    source = SourceConfig(taskset="repair", count=2, ramp=SuccessRamp(above=0.5, groups=2))
    stream = begin(source)
    for position in range(4):
        draw = stream.draw(position, {})
        stream.observe(draw, 1.0 if position != 1 else 0.0)

    levels = [stream.draw(position, {}).level for position in range(4, 6)]
    again = begin(source, state=stream.state(), num_asked=6).draw(6, {})

    # 1 and 0 are a mean of 0.5: level 1 after two groups, then 1 and 1: level 2
    assert levels == [2, 2]
    assert again.level == 2


def test_other_tasks_under_the_name_of_a_source_are_refused_and_under_another_they_begin(write, begin):
    stream = begin(write("a", 10))
    ids(stream, range(3))
    state = stream.state()
    changed = write("a", 11)

    with pytest.raises(BadInputError, match="source 'a': expected the tasks with which this run began"):
        begin(changed, state=state, num_asked=3)
    assert (
        len(set(ids(begin(msgspec.structs.replace(changed, name="b"), state=state, num_asked=3), range(3, 14)))) == 11
    )


def test_two_sources_of_one_name_are_refused(write, begin):
    with pytest.raises(BadInputError, match="sources of different names, found a"):
        begin(write("a", 1), write("a", 1))
