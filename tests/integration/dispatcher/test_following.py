"""A client that waits for groups receives each closing once, even after it missed some events."""

import asyncio
import threading
from contextlib import aclosing

import pytest

from agent_layer.dispatcher import Dispatcher, Report, connect
from agent_layer.dispatcher.group_stream import NamedGroups, newest_closed, read_closings
from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.schema.task import Task
from agent_layer.shipper.destination import open_destination

from ...queues import open_queue
from ...waiting import join, scaled, within

NUM_GROUPS = 2_600
"""More than the stream of closed groups keeps."""


@pytest.fixture
def dispatcher(settings):
    with connect(settings) as dispatcher:
        yield dispatcher


def submit(dispatcher, num, run="r", prefix="t"):
    return dispatcher.submit([Task(id=f"{prefix}{n}", run=run) for n in range(num)])


def run_all(dispatcher, num, run=""):
    """Run ``num`` rollouts."""
    while num > 0:
        leases = open_queue(dispatcher).claim("w", min(num, 256), run=run)
        open_queue(dispatcher).settle([Report(lease=lease, ending="completed") for lease in leases])
        num -= len(leases)
        assert leases


async def take(following, num=None):
    """Ids of the next groups; of all that come when no number is named."""
    found = []
    while num is None or len(found) < num:
        try:
            async with within(30, "the next group that closes"):
                group = await anext(following)
        except StopAsyncIteration:
            break
        assert group.is_closed
        found.append(group.group_id)
    return found


async def test_groups_come_once_whether_they_closed_before_or_after_the_call(dispatcher):
    ids = submit(dispatcher, 6)
    run_all(dispatcher, 2)

    following = dispatcher.finished(ids)
    assert await take(following, 2) == ids[:2]
    run_all(dispatcher, 4)
    assert await take(following) == ids[2:]


async def test_no_group_is_missed_that_the_stream_forgot_before_it_was_read(dispatcher):
    ids = submit(dispatcher, NUM_GROUPS)
    run_all(dispatcher, 1)

    following, other = dispatcher.finished(ids), dispatcher.finished(ids)
    assert await take(following, 1) == await take(other, 1) == ids[:1]
    run_all(dispatcher, NUM_GROUPS - 1)
    assert open_queue(dispatcher).redis.xlen(open_queue(dispatcher).keys.queue("closed")) < NUM_GROUPS - 1
    assert sorted(await take(following)) == sorted(ids[1:])
    assert sorted(await take(other)) == sorted(ids[1:])


@pytest.mark.parametrize("is_shipped", [False, True])
async def test_all_groups_of_a_run_come_wherever_their_end_is_written_down(dispatcher, settings, is_shipped):
    ids = submit(dispatcher, NUM_GROUPS)
    submit(dispatcher, 3, run="other", prefix="o")
    run_all(dispatcher, 10, run="r")

    async with aclosing(dispatcher.finished(run="r")) as following:
        assert await take(following, 10) == ids[:10]
        run_all(dispatcher, NUM_GROUPS - 10, run="r")
        run_all(dispatcher, 3, run="other")
        if is_shipped:
            await asyncio.to_thread(empty_the_outbox, settings, dispatcher)
        assert sorted(await take(following, NUM_GROUPS - 10)) == sorted(ids[10:])

        later = submit(dispatcher, 1, prefix="later")
        run_all(dispatcher, 1, run="r")
        assert await take(following, 1) == later, "and none comes twice"


def empty_the_outbox(settings, dispatcher):
    destination = open_destination(settings)
    while destination.ship_decisions():
        pass
    destination.close()
    assert open_queue(dispatcher).redis.xlen(open_queue(dispatcher).keys.outbox) == 0


async def test_cancelling_leaves_no_thread_and_no_connection(dispatcher, redis, until):
    ids = submit(dispatcher, 2)
    await asyncio.to_thread(int)  # the executor has a thread now
    names_before, others = thread_names(), clients(redis)

    waiting = asyncio.create_task(take(dispatcher.finished(ids)))
    waits = await until(lambda: clients(redis, "xread") - others)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert thread_names() <= names_before
    await until(lambda: not waits & clients(redis))


def thread_names():
    """Without the executor's; those of earlier tests may end at any time."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


def clients(redis, command=None):
    """Ids of the connections; processes of earlier tests may close theirs at any time."""
    return {one["id"] for one in redis.client_list() if command in (None, one["cmd"])}


async def test_a_group_that_nobody_submitted_is_said_at_once(dispatcher):
    ids = submit(dispatcher, 1)

    with pytest.raises(NotFoundError, match=r"group other\.x: expected one that was submitted"):
        await take(dispatcher.finished([*ids, "other.x"]))
    with pytest.raises(BadInputError, match="leave one out"):
        dispatcher.finished(ids, run="r")


async def test_who_names_no_group_gets_those_that_are_open(dispatcher):
    submit(dispatcher, 2)
    run_all(dispatcher, 1)

    following = dispatcher.finished()
    submit(dispatcher, 1, prefix="later")
    run_all(dispatcher, 2)
    assert len(await take(following)) == 1


def test_one_that_missed_nothing_asks_only_for_what_it_heard(dispatcher, redis, keys):
    ids = submit(dispatcher, 40)
    name, groups = keys.queue("closed"), NamedGroups(open_queue(dispatcher).scripts, ids)
    assert list(groups.closed_already()) == [[]]
    newest_id = newest_closed(redis, name)
    run_all(dispatcher, 1)
    read = read_closings(redis, name, newest_id, 1)
    newest_id = read.newest_id
    assert not read.is_whole, "without an earlier position, completeness is not known"
    assert [[group.group_id for group in page] for page in groups.closed_since("0-0", read)] == [ids[:1]]

    run_all(dispatcher, 3)
    read = read_closings(redis, name, newest_id, 1)
    assert read.is_whole
    assert [[group.group_id for group in page] for page in groups.closed_since(newest_id, read)] == [ids[1:4]]
    assert not groups.is_over


def test_waiting_hears_of_more_groups_than_the_stream_keeps(dispatcher, settings):
    ids = submit(dispatcher, NUM_GROUPS)
    with connect(settings) as other:
        working = threading.Thread(target=run_all, args=(other, NUM_GROUPS))
        working.start()
        states = dispatcher.wait(ids, timeout=scaled(60))
        join(working)

    assert [state.group_id for state in states] == ids
    assert all(state.is_closed for state in states)


def test_a_wait_that_is_over_tells_how_its_groups_are_now(dispatcher):
    ids = submit(dispatcher, 2)
    run_all(dispatcher, 1)

    assert [state.num_open for state in dispatcher.wait(ids, timeout=0.05)] == [0, 1]  # wait: it is to end before


def test_leaving_the_block_closes_the_connection(settings, redis, wait_until):
    with connect(settings) as dispatcher:
        assert isinstance(dispatcher, Dispatcher)
        own = str(open_queue(dispatcher).redis.client_id())
        assert own in clients(redis)
    wait_until(lambda: own not in clients(redis))
