"""States kept for an attempt's next holder: noted only after they are stored, and only under the lease."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_layer.errors import BadInputError, LeaseLostError, UnreachableError
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.task import Task
from agent_layer.schema.wire.gateway_api import MarkedRollout
from agent_layer.state.checkpoints import checkpoint_prefix, read_checkpoint
from envs.checkpoints.store import CheckpointStore, LeaseCheckpointer

from ...builders import rollout_with
from ...queues import Queue

STARTED = AttemptStarted(trajectory_id="t", rollout_id="t", attempt=0, run="r", task_id="t", started_at=1.0)


class Bench:
    """A queue, objects, and a gateway with a given number of calls."""

    def __init__(self, redis, keys, settings, pool):
        self.queue = Queue(redis, keys, settings)
        self.keys = keys
        self.objects = open_objects(settings)
        self.pool = pool
        self.num_calls = 0
        self.num_paused = 0
        self.queue.add([Task(id="t", run="r")])

    def claim(self, worker="w-1"):
        (lease,) = self.queue.claim(worker, 1)
        return lease

    def mark(self):
        return MarkedRollout(trajectory_id="t", calls=self.num_calls, seconds=1.5)

    def note_paused(self):
        self.num_paused += 1

    def keeper(self, lease, mark=None):
        shelf = CheckpointStore(keys=self.keys, objects=self.objects, commit_name=self.queue.checkpoint, pool=self.pool)
        return LeaseCheckpointer(
            lease,
            shelf,
            mark=mark or self.mark,
            logs=lambda: {"log-b", "log-a"},
            started=STARTED,
            on_paused=self.note_paused,
        )

    def names(self):
        return [key.rpartition("/")[2] for key in self.objects.list(checkpoint_prefix(self.keys))]


@pytest.fixture
def bench(redis, keys, settings):
    with ThreadPoolExecutor(2) as pool:
        yield Bench(redis, keys, settings, pool)


async def test_the_next_holder_goes_on_with_the_same_attempt_from_what_was_kept_last(bench):
    first = bench.claim()
    keeper = bench.keeper(first)
    for bench.num_calls, state in ((1, b"one"), (4, b"two")):
        assert not await keeper.keep(state)
    bench.queue.release(first)

    second = bench.claim("w-2")

    assert (second.attempt, second.trajectory_id) == (first.attempt, first.trajectory_id)
    assert second.token != first.token
    found = read_checkpoint(bench.keys, bench.objects, second.checkpoint)
    assert (found.calls, found.seconds, found.state, found.logs) == (4, 1.5, b"two", ["log-a", "log-b"])
    assert found.started == STARTED
    assert bench.names() == [second.checkpoint]


async def test_who_lost_the_attempt_changes_nothing(bench):
    first = bench.claim()
    zombie = bench.keeper(first)
    await zombie.keep(b"before")
    bench.queue.release(first)
    second = bench.claim("w-2")
    await bench.keeper(second).keep(b"after")

    with pytest.raises(LeaseLostError):
        await zombie.keep(b"late")

    bench.queue.release(second)
    (name,) = bench.names()
    assert bench.claim().checkpoint == name
    assert read_checkpoint(bench.keys, bench.objects, name).state == b"after"


async def test_the_gateway_too_may_say_that_the_attempt_is_lost(bench):
    def refuse():
        raise LeaseLostError("another went on")

    with pytest.raises(LeaseLostError):
        await bench.keeper(bench.claim(), refuse).keep(b"late")

    assert bench.names() == []


async def test_an_attempt_goes_on_when_a_checkpoint_cannot_be_kept(bench):
    def fail():
        raise UnreachableError("away")

    keeper = bench.keeper(bench.claim(), fail)
    keeper.is_pausing = True

    assert not await keeper.keep(b"one")
    assert keeper.newest is None


async def test_one_that_is_to_pause_does_so_at_its_next_boundary(bench):
    keeper = bench.keeper(bench.claim())
    keeper.is_pausing = True

    assert await keeper.keep(b"one")
    staying = asyncio.create_task(keeper.stay_paused())
    done, _ = await asyncio.wait({staying}, timeout=0.05)  # wait: time to go on, wrongly
    staying.cancel()

    assert not done
    assert bench.num_paused == 1


async def test_saves_at_the_same_time_are_kept_one_after_the_other(bench):
    keeper = bench.keeper(bench.claim())

    await asyncio.gather(*[keeper.keep(b"%d" % number) for number in range(8)])

    assert len(bench.names()) == 1


async def test_a_rollout_saves_any_plain_state_and_is_given_it_back(bench):
    lease, state = bench.claim(), {"turn": 3, "said": ["hi"], "seen": b"\x00\xff", "score": None}
    await rollout_with(bench.keeper(lease)).save(state)
    (name,) = bench.names()

    again = rollout_with(None, read_checkpoint(bench.keys, bench.objects, name).state)

    assert again.saved == state
    assert rollout_with(None).saved is None


async def test_a_state_that_is_more_than_plain_is_refused(bench):
    with pytest.raises(BadInputError, match="expected a state of text"):
        await rollout_with(bench.keeper(bench.claim())).save({"client": object()})


async def test_outside_of_a_worker_nothing_is_saved():
    rollout = rollout_with(None)

    await rollout.save({"turn": 1})

    assert (rollout.saved, rollout.sink.records) == (None, [])
