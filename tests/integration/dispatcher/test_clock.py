"""No wall clock decides when a lease lapses or a back-off ends: the server's may jump as it likes."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError

from agent_layer.dispatcher import Report
from agent_layer.dispatcher.queue import WorkerQueue
from agent_layer.engines.registry import EngineRegistry
from agent_layer.infra import Keys, SharedClock, open_async_redis, open_redis
from agent_layer.schema import Task, new_id
from agent_layer.store.consumers.claims import Claims, Consumer

from ...profiles import num_examples
from ...queues import Queue

LEASE_SECONDS = 20.0
BOUND_SECONDS = 2 * LEASE_SECONDS
"""A lease, and the grace after a silence."""
STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 9.0),  # seconds that pass: within a heartbeat of ten
        st.sampled_from([0, 0, -60, 60, -3600, 3600]) | st.floats(-4000, 4000),  # what the wall clock shows then
        st.permutations(["holder", "other", "client"]),  # in which order they ask
    ),
    min_size=12,
    max_size=40,
)


@dataclass
class World:
    """Processes of one queue on different machines: their monotonic clocks pass together, from different origins."""

    redis: Redis
    settings: object
    passed: float = 0.0
    keys: Keys = field(default_factory=lambda: Keys(f"clock-{new_id()}"))

    def queue(self, origin: float) -> WorkerQueue:
        options = {"jitter": lambda: 1.0, "monotonic": lambda: origin + self.passed}
        return WorkerQueue(self.redis, self.keys, self.settings, **options)

    def lapses_at(self, lease) -> float | None:
        return self.redis.zscore(self.keys.queue("leases"), lease.rollout_id)


@pytest.fixture
def moved_redis(start_redis, moved_clock):
    moved_clock.move(0)
    with Redis.from_url(start_redis("carried", **moved_clock.variables)) as client:
        yield client


@pytest.fixture
def queue_settings(settings):
    return settings.model_copy(
        update={"lease_seconds": LEASE_SECONDS, "heartbeat_seconds": 10.0, "retry_base_seconds": 30.0}
    )


def play(world, steps, move) -> None:
    holder, gone, other, client = (world.queue(origin) for origin in (5.0, 1e6, 0.0, 77.7))
    Queue(world.redis, world.keys, world.settings).add([Task(id=name, run="r", input=1) for name in "abc"])
    (kept,), (left,), (failed,) = (one.claim(name, 1) for one, name in ((holder, "h"), (gone, "g"), (other, "o")))
    assert other.settle([Report(lease=failed, ending="retry", error="infra: x")]) == [None]
    due, done = world.passed + 30.0, []

    def ask(who: str) -> None:
        if who == "holder":
            assert holder.heartbeat("h", b"{}", [(kept, "running")]).leases == ["go"]
        elif who == "client":
            client.reap()
        else:
            done.extend((lease.rollout_id, world.passed) for lease in other.claim("o", 4))

    for seconds, shown, order in steps:
        world.passed += seconds
        move(shown)
        for who in order:
            ask(who)
    ended = dict(done)
    assert kept.rollout_id not in ended
    if left.rollout_id in ended:
        assert ended[left.rollout_id] >= LEASE_SECONDS
    else:
        assert world.passed < BOUND_SECONDS
    if failed.rollout_id in ended:
        assert ended[failed.rollout_id] >= due - 1
    else:
        assert world.passed < due + 9
    assert holder.settle([Report(lease=kept, ending="completed")]) == [None]


@given(STEPS)
@hypothesis_settings(
    max_examples=num_examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_time_passes_by_the_clocks_of_processes_alone(redis, queue_settings, steps):
    play(World(redis, queue_settings), steps, lambda _: None)


@given(STEPS)
@hypothesis_settings(
    max_examples=num_examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_wall_clock_that_jumps_takes_no_live_lease_and_keeps_no_dead_one(
    moved_redis, moved_clock, queue_settings, steps
):
    moved_clock.move(0)
    play(World(moved_redis, queue_settings), steps, moved_clock.move)


@pytest.mark.parametrize("shown", [-3600, -60, 60, 3600])
def test_members_of_a_consumer_and_gateways_outlive_a_jump(moved_redis, moved_clock, settings, shown):
    world = World(moved_redis, settings)
    first, second = (
        Claims(moved_redis, world.keys, Consumer("c", "r", member=name), 30.0, monotonic=lambda: world.passed)
        for name in "ab"
    )
    registry = EngineRegistry(moved_redis, world.keys, gateway_seconds=60.0)
    registry.renew_gateway("g")
    first.join()
    second.join()

    moved_clock.move(shown)

    assert second.take("", None, None) == "none"
    assert moved_redis.hexists(world.keys.claims("r", "c", "train", "sessions"), "a")
    assert registry.live_gateways() == ["g"]
    world.passed += 31.0
    second.take("", None, None)
    assert not moved_redis.hexists(world.keys.claims("r", "c", "train", "sessions"), "a")


@pytest.mark.parametrize(
    "read", [lambda client: client.xread({"x": "0-0"}, block=1000), lambda client: client.blpop(["x"], timeout=0.5)]
)
def test_a_blocked_read_ends_though_the_wall_clock_went_back(settings, moved_redis, moved_clock, read):
    name = moved_redis.get_connection_kwargs()["path"]
    threading.Timer(0.3, moved_clock.move, [-3600]).start()
    moved = settings.model_copy(update={"redis_url": f"unix://{name}", "retry_seconds": 3600.0})
    with open_redis(moved) as client:
        assert not read(client)


async def test_a_blocked_read_of_a_loop_ends_too(settings, moved_redis, moved_clock):
    name = moved_redis.get_connection_kwargs()["path"]
    threading.Timer(0.3, moved_clock.move, [-3600]).start()
    moved = settings.model_copy(update={"redis_url": f"unix://{name}"})
    async with await asyncio.to_thread(open_async_redis, moved) as client:
        with pytest.raises(RedisTimeoutError):
            await client.xread({"x": "0-0"}, block=1000)
        assert await client.xread({"x": "0-0"}, block=1) == []


def test_time_that_nobody_saw_pass_ends_no_lease_and_records_carry_the_time_of_day(redis, keys, queue_settings):
    seconds = redis.time()[0]
    redis.set(keys.clock, round(1000 * (seconds - 3 * 86_400)))  # all processes were away for three days
    queue = Queue(redis, keys, queue_settings)
    queue.add([Task(id="t", run="r", input=1)])
    (lease,) = queue.claim("w", 1)
    queue.settle([Report(lease=lease, ending="completed")])

    ((_, accepted), (_, group)) = redis.xrange(keys.outbox)
    assert all(abs(float(entry[b"at"]) - seconds) < 60 for entry in (accepted, group))
    (rollout,) = queue.dispatcher.rollouts([lease.group_id])
    (state,) = queue.dispatcher.groups([lease.group_id])
    assert all(abs(at - seconds) < 60 for at in (rollout.since, state.queued_at, state.closed_at))


def test_a_process_counts_on_after_redis_lost_all(redis, keys):
    passed = [0.0, 0.0]
    one, two = (SharedClock(redis, keys, monotonic=lambda at=at: passed[at]) for at in (0, 1))
    before = one.advance()
    two.estimate_ms()
    passed[:] = [50.0, 49.0]
    redis.delete(keys.clock)

    assert two.advance() == pytest.approx(before + 49.0, abs=0.01)
    assert one.advance() == pytest.approx(before + 50.0, abs=0.01)
    assert two.advance() == two.read() == pytest.approx(before + 50.0, abs=0.01)
