"""Redis forgets, at every point of the line: nothing is accepted twice, delivered with other members, or lost."""

from itertools import combinations

import pytest
from redis import Redis

from agent_layer.dispatcher import Report
from agent_layer.errors import UnreachableError
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.durability import durable_writes
from agent_layer.infra.redis.keys import Keys
from agent_layer.infra.redis.retry import RedisUnreachableError
from agent_layer.schema import Accepted, Group, Task, decode, encode, new_id, trajectory_owner
from agent_layer.shipper.direct import DirectDestination
from agent_layer.store import (
    StoredRecord,
    build_segment,
    enter_segments,
    open_store,
    read_record,
    restore_index,
    segment_key,
)

from ...builders import attempt
from ...forgetful import ForgetfulRedis
from ...queues import Queue
from ...stored import stored_records

POINTS = ("submit", "claim", "record", "accept", "ship", "close", "ship_closed", "deliver", "ack")
"""Moves of the line in their order; Redis forgets after one of them."""


class Line:
    """A group of two on its way from its submission to a consumer, move by move."""

    def __init__(self, settings):
        self.settings, self.keys = settings, Keys(settings.namespace)
        self.redis = open_redis(settings)
        self.queue = Queue(self.redis, self.keys, settings)
        self.objects = open_objects(settings)
        self.destination = DirectDestination(self.keys, self.redis, self.objects)
        self.store = open_store(settings)
        self.leases, self.held, self.deliveries = [], None, []
        self.opened: dict[str, str] = {}
        """What the gateway knows: attempt → lease under which it was opened."""

    def submit(self):
        (self.group_id,) = self.queue.dispatcher.submit([Task(id="t", run="r", group_size=2)])

    def claim(self):
        leases = self.queue.claim("w", 2)
        self.leases = [one for one in leases if self.opened.setdefault(one.trajectory_id, one.token) == one.token]
        for lease in leases:
            if lease not in self.leases:  # the gateway refuses the number: test_fences.py
                self.queue.release(lease)

    def record(self):
        for lease in self.leases:
            records = [one for one in attempt(lease.trajectory_id, score=1.0) if not isinstance(one, Accepted)]
            self.destination.store(new_id(), [encode(one) for one in records])

    def accept(self):
        self._report(self.leases[:1])

    def ship(self):
        self.destination.ship_decisions()

    def close(self):
        self._report(self.leases[1:])

    ship_closed = ship

    def deliver(self):
        for delivery in self.store.follow("trainer", "r", wait_seconds=0):
            self.held = delivery
            self.deliveries.append(tuple(delivery.group.trajectory_ids))

    def ack(self):
        self.held.ack()

    def _report(self, leases):
        self.queue.settle([Report(lease=lease, ending="completed") for lease in leases])

    def finish(self):
        """Go on as workers do, whatever Redis still knows, until nothing is left to do."""
        for _ in range(5):
            for rollout in self.redis.zrange(self.keys.queue("leases"), 0, -1):
                self.redis.zadd(self.keys.queue("leases"), {rollout: 0})
            self.queue.reap()
            self.claim()
            self.record()
            self._report(self.leases)
            self.ship()
        self.deliver()

    def check(self):
        """Hold the promises, by what is stored."""
        records = [decode(one) for one in stored_records(self.store)]
        accepted = {one.trajectory_id for one in records if isinstance(one, Accepted)}
        rollouts = [one.rpartition("-")[0] for one in accepted]
        assert sorted(rollouts) == sorted(set(rollouts)), "accepted twice"
        members = {tuple(one.trajectory_ids) for one in records if isinstance(one, Group)}
        assert len(members) == 1, "decided twice"
        assert set(self.deliveries) == members, "delivered with other members, or never"
        assert set(*members) == accepted


@pytest.fixture(params=["carried", pytest.param("redis6", marks=pytest.mark.other_make)])
def forgetful(request, redis_programs, tmp_path):
    if request.param not in redis_programs:
        pytest.skip(f"no {request.param} server; 'make test' puts it there")
    server = ForgetfulRedis(redis_programs[request.param], tmp_path)
    yield server
    server.close()


@pytest.fixture
def line(settings, forgetful):
    made = Line(settings.model_copy(update={"redis_url": forgetful.url}))
    yield made
    made.redis.close()


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(at, id=name, marks=[] if name in ("submit", "ship", "ship_closed", "ack") else pytest.mark.long)
        for at, name in enumerate(POINTS)
    ],
)
def test_a_power_loss_takes_nothing_that_was_answered(line, forgetful, last):
    for name in POINTS[: last + 1]:
        getattr(line, name)()

    forgetful.lose_power()
    num_delivered = len(line.deliveries)
    line.finish()

    line.check()
    if POINTS[last] == "ack":
        assert len(line.deliveries) == num_delivered, "an acknowledged group came again"


def forget_by_cut(line, forgetful, first, last):
    for name in POINTS[:first]:
        getattr(line, name)()
    position = forgetful.mark()
    for name in POINTS[first:last]:
        getattr(line, name)()
    forgetful.forget_since(position)


def forget_by_promotion(line, forgetful, first, last):
    for name in POINTS[:first]:
        getattr(line, name)()
    replica = forgetful.detach_replica()
    for name in POINTS[first:last]:
        getattr(line, name)()
    forgetful.promote(replica)


SPANS = [(first, last) for first, last in combinations(range(len(POINTS) + 1), 2)]
QUICK = {(2, 7), (4, 7), (0, 9)}


@pytest.mark.parametrize("forget", [forget_by_cut, forget_by_promotion])
@pytest.mark.parametrize(
    "span", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.long) for one in SPANS], ids=str
)
def test_what_was_decided_and_stored_is_never_decided_otherwise(line, forgetful, forget, span):
    forget(line, forgetful, *span)
    line.submit()  # its submitter saw Redis forget, or asks again after a restart

    line.finish()

    line.check()


HOUR = 3_600_000
"""In milliseconds."""


def test_an_accepted_attempt_that_had_paused_is_not_accepted_again(line, forgetful):
    line.submit()
    line.claim()
    line.record()
    line.queue.checkpoint(line.leases[0], "c")
    line.queue.settle([Report(lease=one, ending="pause") for one in line.leases[:1]])
    position = forgetful.mark()
    (again,) = line.queue.claim("w", 1)
    line.queue.settle([Report(lease=again, ending="completed")])
    line.ship()
    forgetful.forget_since(position)
    line.redis.incrby(line.keys.clock, HOUR)

    (third,) = line.queue.claim("w", 1)
    assert line.queue.settle([Report(lease=third, ending="completed")]) != [None]
    line.finish()

    line.check()


def test_a_group_closes_as_soon_as_an_adopted_attempt_makes_it_whole(line, forgetful):
    line.queue.dispatcher.submit([Task(id="t", run="r", group_size=2, launch=3)])
    leases = line.leases = line.queue.claim("w", 3)
    line.record()
    position = forgetful.mark()
    line.accept()
    line.ship()
    forgetful.forget_since(position)

    assert line.queue.settle([Report(lease=leases[1], ending="completed")]) == [None]
    line.queue.settle([Report(lease=leases[0], ending="retry")])

    (group,) = line.queue.dispatcher.groups([leases[0].group_id])
    assert (group.is_closed, group.num_accepted, group.fill) == (True, 2, "whole")


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_group_whose_record_is_stored_shows_what_the_record_says(line, forgetful, is_cancelled):
    forget_by_cut(line, forgetful, 2, 7)

    if is_cancelled:
        line.queue.dispatcher.cancel([line.group_id])
    line.finish()

    (group,) = line.queue.dispatcher.groups([line.group_id])
    assert (group.is_closed, group.num_accepted, group.num_usable, group.fill) == (True, 2, 2, "whole")


@pytest.mark.parametrize("ahead_ms", [-HOUR, 0, HOUR])
def test_attempts_are_numbered_from_0_whatever_the_server_shows(line, ahead_ms):
    line.redis.set(line.keys.clock, round(1000 * line.redis.time()[0]) + ahead_ms)
    line.submit()
    line.claim()

    assert [lease.attempt for lease in line.leases] == [0, 0]


def test_a_forgotten_claim_leaves_its_number_unused(line, forgetful):
    line.submit()
    position = forgetful.mark()
    line.claim()
    forgotten = line.leases
    forgetful.forget_since(position)

    again = line.queue.claim("v", 2)

    assert len(again) == len(forgotten) == 2
    assert {one.trajectory_id for one in again}.isdisjoint(one.trajectory_id for one in forgotten)
    assert min(int(one.token) for one in again) > max(int(one.token) for one in forgotten)


@pytest.fixture
def forget_at(monkeypatch):
    """``forget_at(number, forget)``: call ``forget`` before the command of that number from now on; it is then sent."""

    def arrange(number, forget):
        execute, left = Redis.execute_command, [number]

        def run(client, *command, **options):
            left[0] -= 1
            if left[0] == -1:
                forget()
            return execute(client, *command, **options)

        monkeypatch.setattr(Redis, "execute_command", run)

    return arrange


@pytest.mark.parametrize("number", range(5))
def test_no_segment_is_named_as_committed_without_its_rows(line, forgetful, forget_at, number):
    restore_index(line.redis, line.keys, line.objects)
    trajectory_id = "t.0.0-0"
    records = [StoredRecord(read_record(one), one) for one in map(encode, attempt(trajectory_id, score=1.0))]
    segment, sealed = build_segment(new_id(), {trajectory_owner(trajectory_id): records})
    line.objects.put(segment_key(line.keys, sealed.footer.name), segment)
    begin = forgetful.mark()
    forget_at(number, lambda: forgetful.forget_since(begin))

    enter_segments(line.redis, line.keys, [sealed])

    assert line.redis.hexists(line.keys.segments, sealed.footer.name)
    assert line.redis.hexists(line.keys.chunks(trajectory_id), sealed.footer.name)
    assert line.redis.hget(line.keys.trajectory(trajectory_id), "accepted") == b"1"


def test_a_restoration_that_fails_leaves_its_place_to_the_next(line, monkeypatch):
    def refuse(*_):
        raise UnreachableError("objects: expected an answer, found none; look at the bucket")

    with monkeypatch.context() as away:
        away.setattr(line.objects, "list", refuse)
        with pytest.raises(UnreachableError):
            restore_index(line.redis, line.keys, line.objects)

    assert restore_index(line.redis, line.keys, line.objects)


_QUICK_COMMANDS = {8, 11}


@pytest.mark.parametrize(
    "number", [pytest.param(one, marks=[] if one in _QUICK_COMMANDS else pytest.mark.long) for one in range(24)]
)
def test_a_power_loss_while_decisions_are_shipped_loses_none(line, forgetful, forget_at, number):
    for name in POINTS[: POINTS.index("close") + 1]:
        getattr(line, name)()
    forget_at(number, forgetful.lose_power)

    line.ship()
    line.finish()

    line.check()


@pytest.mark.parametrize("shown", [-3600, 3600])
def test_a_wall_clock_that_jumps_at_a_restart_hides_no_forgotten_claim(
    settings, redis_programs, tmp_path, moved_clock, shown
):
    moved_clock.move(0)
    forgetful = ForgetfulRedis(redis_programs["carried"], tmp_path, variables=moved_clock.variables)
    line = Line(settings.model_copy(update={"redis_url": forgetful.url}))
    line.submit()
    begin = forgetful.mark()
    line.claim()
    forgotten = line.leases
    moved_clock.move(shown)
    forgetful.forget_since(begin)

    again = line.queue.claim("v", 2)
    forgetful.close()

    assert {one.trajectory_id for one in again}.isdisjoint(one.trajectory_id for one in forgotten)


def test_rollouts_begin_with_their_first_attempt_soon_after_a_restart_though_the_shared_time_stood_still(
    line, forgetful
):
    passed = 0.0
    queue = Queue(line.redis, line.keys, line.settings, monotonic=lambda: passed)
    line.redis.set(line.keys.clock, round(1000 * (line.redis.time()[0] - 3 * 86_400)))  # no process ran for three days
    line.submit()
    forgetful.forget_since(forgetful.mark())
    queue.claim("v", 2)
    passed += 3.0

    queue.heartbeat("v", b"{}", [])
    queue.dispatcher.submit([Task(id="later", run="r")])
    (lease,) = queue.claim("w", 1)

    assert lease.attempt == 0


@pytest.mark.parametrize("number", [pytest.param(one, marks=pytest.mark.long if one % 8 else []) for one in range(16)])
def test_a_rebuild_enters_all_though_its_server_forgets(line, forgetful, forget_at, number):
    for name in POINTS[:7]:
        getattr(line, name)()
    begin = forgetful.mark()
    forget_at(number, lambda: forgetful.forget_since(begin))

    line.store.admin.reindex(drop=True)

    assert not line.redis.exists(line.keys.reindexing)
    assert not line.store.admin.check().findings


@pytest.mark.parametrize("make", [pytest.param(one, marks=pytest.mark.other_make) for one in ("redis6", "redis7")])
def test_half_of_a_torn_decision_never_comes_back(settings, redis_programs, tmp_path, make):
    if make not in redis_programs:
        pytest.skip(f"no {make} server; 'make test' puts it there")
    forgetful = ForgetfulRedis(redis_programs[make], tmp_path)
    line = Line(settings.model_copy(update={"redis_url": forgetful.url}))
    for name in ("submit", "claim", "record"):
        getattr(line, name)()
    begin = forgetful.mark()
    line.accept()
    forgetful.mark()
    written = begin.file.read_bytes()
    torn = written.index(b"HSET", written.index(b"XADD", begin.size_bytes)) + 2
    forgetful.forget_since(begin._replace(size_bytes=torn))
    restore_index(line.redis, line.keys, line.objects)
    line.redis.eval(
        "redis.call('SET', KEYS[1], 1) redis.call('DEL', KEYS[1])", 1, line.keys.synced
    )  # ends a transaction
    forgetful.mark()
    forgetful.kill()
    forgetful.start()

    assert line.redis.xlen(line.keys.outbox) == 0
    forgetful.close()


def test_an_emptied_server_decides_nothing_before_its_index_is_back(line):
    for name in POINTS[:7]:
        getattr(line, name)()

    line.redis.flushall()
    line.submit()
    line.finish()

    line.check()


@pytest.mark.parametrize("user", ["default", "plain"])
def test_a_server_on_this_machine_is_synced_by_us_whoever_asks(line, forgetful, user):
    line.redis.execute_command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "+@all", "-config")
    line.redis.execute_command("ACL", "SETUSER", "default", "on", ">secret")
    url = forgetful.url.replace("unix://", f"unix://{user}:secret@")
    own = line.settings.model_copy(update={"redis_url": url})

    with open_redis(own) as redis:
        assert durable_writes(redis, line.keys).find_kind(redis) == "own file"


@pytest.mark.parametrize("make", ["carried", pytest.param("redis6", marks=pytest.mark.other_make)])
def test_a_server_elsewhere_says_what_is_on_its_disk_or_gets_time(settings, redis_programs, tmp_path, make):
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "127.0.0.2", "--protected-mode", "no")
    server = ForgetfulRedis(redis_programs[make], tmp_path, options)
    elsewhere = f"redis://127.0.0.2:{port}"  # an address that is not known to be this machine's
    with open_redis(settings.model_copy(update={"redis_url": elsewhere})) as redis:
        kind = durable_writes(redis, Keys(settings.namespace)).find_kind(redis)
    server.close()

    assert kind == ("age" if make == "redis6" else "WAITAOF")


def test_nothing_leaves_before_the_replicas_that_must_hold_it_have_it(line):
    strict = line.settings.model_copy(update={"redis_replicas": 1, "retry_seconds": 0.5})
    with open_redis(strict) as redis:
        for name in POINTS[:4]:
            getattr(line, name)()

        with pytest.raises(RedisUnreachableError, match="at 1 replicas"):
            DirectDestination(line.keys, redis, line.objects).ship_decisions()

    assert not [one for one in map(decode, stored_records(line.store)) if isinstance(one, Accepted)]
