"""Promises of the queue that one example shows better than a model."""

import base64
import json
import pickle
import threading
from pathlib import Path

import pytest

from agent_layer.dispatcher.client import Dispatcher
from agent_layer.errors import BackPressureError, BadInputError, LeaseLostError
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.task import Task

from ...queues import Queue
from ...waiting import join, scaled


@pytest.fixture
def queue(redis, keys, settings):
    return Queue(redis, keys, settings, jitter=lambda: 1.0)


@pytest.fixture
def dispatcher(redis, settings):
    return Dispatcher(redis, settings)


def task(name="t", **fields):
    return Task(id=name, run="r", **fields)


def ended(lease, status="completed"):
    return Outcome(trajectory_id=lease.trajectory_id, run="r", status=status, ended_at=0.0)


def claim_one(queue, worker="w-7", **options):
    (lease,) = queue.claim(worker, 1, **options)
    return lease


def test_a_task_travels_whole(queue):
    request = task(input={"a": [1]}, grading="secret", needs=["gpu"], limits={"turns": 3}, labels={"k": "v"})
    queue.add([request])

    assert claim_one(queue, capabilities=["gpu"]).task.grading == "secret"


def test_a_worker_sees_what_it_leases_next_without_leasing_it(queue):
    questions = [task("later"), task("sooner", priority=1), task("twice", group_size=2), task("other", needs=["gpu"])]
    queue.add(questions)

    assert [one.id for one in queue.peek(3)] == ["sooner", "later", "twice"]
    assert [one.id for one in queue.peek(9, ["gpu"])] == ["sooner", "later", "twice", "twice", "other"]
    assert queue.peek(9, run="another") == []
    assert [lease.task.id for lease in queue.claim("w", 9)] == ["sooner", "later", "twice", "twice"]
    assert queue.peek(9) == []


def test_submitting_again_queues_nothing_and_another_round_does(queue):
    first = queue.add([task(group_size=2)])
    again = queue.add([task(group_size=2)])
    other = queue.add([task(group_size=2)], 1)

    assert first == again != other
    assert queue.views.stats().num_queued == 4


def test_what_the_index_holds_is_not_run_again_when_the_queue_was_lost(queue, dispatcher, redis, keys):
    first, second = queue.add([task("closed"), task("open")])
    redis.delete(*redis.keys(keys.queue("*")))
    redis.set(keys.group(first), b"decided")
    redis.hset(keys.trajectory(f"{second}.0-0"), "status", "lost")

    again = queue.add([task("closed"), task("open")])
    leases = queue.claim("w", 2)

    assert again == [first, second]
    assert [lease.trajectory_id for lease in leases] == [f"{second}.0-1"]
    assert dispatcher.wait([first], timeout=scaled(5)) == []


def test_a_retry_goes_back_to_its_place_in_the_order(queue, redis, keys):
    queue.add([task(name) for name in "abc"])
    lease = claim_one(queue)
    queue.fail(lease, "user", "broke")
    redis.zadd(keys.queue("delayed"), {lease.rollout_id: 0})

    assert [one.task.id for one in queue.claim("w", 3)] == ["a", "b", "c"]


def test_higher_priority_goes_first_and_an_agent_is_a_need(queue):
    queue.add([task("low"), task("high", priority=5), task("mine", priority=9, agent="solver")])

    assert [one.task.id for one in queue.claim("w", 3)] == ["high", "low"]
    assert [one.task.id for one in queue.claim("w", 3, ["agent:solver"])] == ["mine"]


def test_backing_off_takes_longer_each_time(queue, redis, keys):
    queue.add([task()])
    delays = []
    for _ in range(2):
        queue.fail(claim_one(queue), "infra", "away")
        ((rollout_id, due),) = redis.zrange(keys.queue("delayed"), 0, -1, withscores=True)
        delays.append(due - int(redis.hget(keys.queue("r", rollout_id.decode()), "queued_at")))
        redis.zadd(keys.queue("delayed"), {rollout_id: 0})

    assert delays == [500, 1000]


def test_the_dead_keep_their_errors(queue, redis, keys, dispatcher):
    queue.add([task()])
    for attempt in range(queue.settings.max_attempts):
        lease = claim_one(queue)
        queue.fail(lease, "user", f"error {attempt}")
        redis.zadd(keys.queue("delayed"), {lease.rollout_id: 0}, xx=True)

    (dead,) = dispatcher.dead()
    assert dead.errors == ["user: error 0", "user: error 1", "user: error 2"]
    (group,) = dispatcher.wait([dead.group_id], timeout=scaled(1))
    assert (group.is_closed, group.num_accepted) == (True, 0)


def test_what_cannot_succeed_dies_at_once(queue):
    queue.add([task()])
    queue.fail(claim_one(queue), "user", "no such agent", retryable=False)

    assert queue.views.stats().num_dead == 1


def test_a_late_commit_is_refused_with_a_sentence(queue, redis, keys):
    queue.add([task()])
    late = claim_one(queue, "w-7")
    redis.zadd(keys.queue("leases"), {late.rollout_id: 0})
    in_time = claim_one(queue, "w-9")

    with pytest.raises(LeaseLostError, match=f"{late.trajectory_id}.*attempt 1 held by 'w-9'; discard") as caught:
        queue.commit(late, ended(late))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    queue.commit(in_time, ended(in_time))
    with pytest.raises(LeaseLostError, match="found it completed"):
        queue.commit(late, ended(late))


def test_a_lapsed_attempt_is_written_down_as_lost(queue, redis, keys):
    queue.add([task()])
    lease = claim_one(queue)
    redis.zadd(keys.queue("leases"), {lease.rollout_id: 0})
    queue.reap()

    ((_, entry),) = redis.xrange(keys.outbox)
    assert (entry[b"kind"], entry[b"trajectory_id"]) == (b"lost", lease.trajectory_id.encode())


def test_the_same_commit_again_is_answered_yes(queue):
    queue.add([task()])
    lease = claim_one(queue)
    queue.commit(lease, ended(lease))
    queue.commit(lease, ended(lease))

    with pytest.raises(LeaseLostError, match="found it completed"):
        queue.commit(lease, ended(lease, "truncated"))


def test_only_an_outcome_that_counts_is_committed(queue):
    queue.add([task()])
    lease = claim_one(queue)

    with pytest.raises(BadInputError, match="completed or truncated, found 'failed'"):
        queue.commit(lease, ended(lease, "failed"))


def test_what_is_given_back_does_not_count_as_a_failure(queue):
    queue.add([task()])
    for _ in range(10):
        queue.release(claim_one(queue))

    (lease,) = queue.claim("w", 1)
    assert lease.attempt == 10


def test_a_full_queue_refuses(redis, keys, settings):
    small = Queue(redis, keys, settings.model_copy(update={"max_queued_rollouts": 3}))
    small.add([task("a", group_size=3)])
    small.add([task("a", group_size=3)])

    with pytest.raises(BackPressureError, match="room for 1 more"):
        small.add([task("b")])


def test_a_waiting_worker_is_woken_by_a_task(queue):
    found = []
    waiting = threading.Thread(target=lambda: found.extend(queue.claim("w", 1, wait_seconds=scaled(60))))
    waiting.start()
    queue.add([task()])
    join(waiting)

    assert [lease.task.id for lease in found] == ["t"]


def test_a_waiting_worker_takes_what_has_waited_out_its_back_off(redis, keys, settings):
    queue = Queue(redis, keys, settings.model_copy(update={"retry_base_seconds": 0.05}))
    queue.add([task()])
    queue.fail(claim_one(queue), "infra", "away")

    assert claim_one(queue, wait_seconds=scaled(30)).attempt == 1


def test_a_cancelled_rollout_is_told_so_and_its_group_closes(queue, dispatcher):
    (group_id,) = queue.add([task(group_size=2)])
    lease = claim_one(queue)

    assert queue.cancel([group_id]) == 2
    assert queue.heartbeat("w", b'{"slots":1}', [(lease, "running")]).leases == ["cancel"]
    with pytest.raises(LeaseLostError, match="found it cancelled"):
        queue.commit(lease, ended(lease))
    assert dispatcher.wait([group_id], timeout=scaled(5))[0].is_closed


def test_however_many_leases_are_kept_each_is_answered_in_its_place(queue):
    groups = queue.add([task(str(number), group_size=300) for number in range(3)])
    held = [(lease, "running") for _ in range(4) for lease in queue.claim("w", 256)]
    queue.cancel([groups[1]])

    beats = queue.heartbeat("w", b"{}", held)

    assert beats.leases == ["cancel" if lease.group_id == groups[1] else "go" for lease, _ in held]
    assert beats.leases.count("cancel") == 300


def test_heartbeats_show_the_worker_until_it_leaves(queue, dispatcher):
    queue.heartbeat("w-1", b'{"target":"m:a","slots":2}', [])
    (seen,) = dispatcher.workers()
    assert (seen.worker, seen.about) == ("w-1", {"target": "m:a", "slots": 2})

    queue.leave("w-1")
    assert dispatcher.workers() == []


def test_a_worker_that_is_half_forgotten_hides_no_other(queue, dispatcher, redis, keys):
    for worker in ("w-1", "w-2"):
        queue.heartbeat(worker, b'{"slots":2}', [])
    redis.hdel(keys.queue("worker"), "w-1")  # as where a late heartbeat comes into the midst of its leaving

    assert [(seen.worker, seen.about) for seen in dispatcher.workers()] == [("w-1", {}), ("w-2", {"slots": 2})]


def test_waiting_ends_when_all_groups_are_closed(queue, dispatcher):
    groups = dispatcher.submit([task("a"), task("b")])
    before = dispatcher.wait(groups, timeout=0.05)  # wait: it is to end before
    assert not any(group.is_closed for group in before)

    states = []
    waiting = threading.Thread(target=lambda: states.extend(dispatcher.wait(groups, timeout=scaled(60))))
    waiting.start()
    for lease in queue.claim("w", 2):
        queue.commit(lease, ended(lease))
    join(waiting)

    assert [group.num_accepted for group in states] == [1, 1]


def test_however_many_groups_are_named_all_their_rollouts_are_shown(dispatcher):
    groups = dispatcher.submit([task(f"t{number}") for number in range(1100)])

    assert [one.group_id for one in dispatcher.rollouts(groups)] == groups
    assert dispatcher.rollouts([]) == []


def test_many_groups_are_submitted_in_order(dispatcher, queue):
    groups = dispatcher.submit([task(f"t{number}") for number in range(600)], group_size=2, run="other")

    assert len(set(groups)) == 600
    assert [lease.rollout_id for lease in queue.claim("w", 3)] == [f"{groups[0]}.0", f"{groups[0]}.1", f"{groups[1]}.0"]


def test_a_task_that_cannot_be_queued_is_refused_before_any_is(dispatcher):
    with pytest.raises(BadInputError, match="group_size from 1"):
        dispatcher.submit([task("a"), task("b", group_size=0)])

    assert dispatcher.stats().num_queued == 0


def restore_old_queue(redis, keys):
    """Write the keys of a queue that commit cd7c8a16 left: groups in every state, runs paused, shared, waiting."""

    def read(text):
        return text[1:].encode() if text.startswith("=") else base64.b64decode(text)

    def read_fields(fields):
        return {read(field): read(text) for field, text in fields.items()}

    writers = {
        "hash": lambda key, fields: redis.hset(key, mapping=read_fields(fields)),
        "zset": lambda key, scores: redis.zadd(key, {read(member): score for member, score in scores.items()}),
        "set": lambda key, members: redis.sadd(key, *map(read, members)),
        "list": lambda key, members: redis.rpush(key, *map(read, members)),
        "stream": lambda key, entries: [redis.xadd(key, read_fields(fields), id=one) for one, fields in entries],
        "string": lambda key, text: redis.set(key, read(text)),
    }
    for name, (kind, content) in json.loads(Path(__file__).with_name("old_queue.json").read_text()).items():
        writers[kind](keys.name(name), content)


FIRST_CHANGES = {
    "a claim": lambda queue: queue.claim("w9", 1, run="no run"),
    "a submission": lambda queue: queue.add([Task(id="added", run="r4")]),
    "a reap": lambda queue: queue.reap(),
    "a resume": lambda queue: queue.resume("r5"),
    "a cancel": lambda queue: queue.cancel(["over.1d3e13e27314"]),
}


@pytest.mark.parametrize("first", FIRST_CHANGES)
def test_a_queue_of_an_earlier_version_opens_and_goes_on_in_its_order(queue, dispatcher, redis, keys, first):
    restore_old_queue(redis, keys)
    before, needs = dispatcher.stats(), queue.views.needs()

    FIRST_CHANGES[first](queue)

    added = first == "a submission"
    assert (before.num_queued, before.num_delayed, before.num_paused, before.num_dead) == (15, 1, 1, 1)
    assert dispatcher.stats().num_queued == 15 + added
    assert sum(queue.views.needs().values()) == sum(needs.values()) + added == 16 + added
    assert [one.task.id for one in queue.claim("w2", 1, ["gpu"])] == ["first"]
    order = [
        "paused",
        "dead",
        "refilled",
        "second",
        "refilled",
        "wide",
        "second",
        "wide",
        "wide",
        "wide",
        "wide",
        "wide",
    ]
    assert [one.task.id for one in queue.claim("w2", 12)] == order
    queue.resume("r4")
    dispatcher.serve("r3", 2)
    rest = [one.task.id for one in queue.claim("w2", 9, ["sandbox:oci", "gpu"])]
    assert rest == ["late", "held", *["added"] * added]
