"""Members of one consumer that are killed or stopped: others get what they held, in bounded time."""

import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

from agent_layer.schema.codec import encode, record_owner
from agent_layer.schema.ids import new_id
from agent_layer.schema.rollout import Group
from agent_layer.store.maintenance.rebuild import index_segment
from agent_layer.store.segments.format import StoredRecord, build_segment, segment_key
from agent_layer.store.store import open_store

from ...waiting import read_line, scaled

MEMBER = """
import sys
from agent_layer.store import open_store

for one in open_store().follow("c", "r", member=sys.argv[1]):
    print(one.group.group_id, flush=True)
    if sys.stdin.readline() == "ack\\n":
        print(one.ack(), flush=True)
"""


@pytest.fixture
def claim_seconds():
    """Time without a renewal after which others get what a member held."""
    return scaled(1.5)


@pytest.fixture
def store(settings, claim_seconds):
    return open_store(settings.model_copy(update={"claim_seconds": claim_seconds}))


@pytest.fixture
def close(store):
    """``close(*group_ids)``: as the shipper does, in this order."""

    def close(*group_ids):
        groups = [Group(group_id=one, run="r", task_id="t", closed_at=float(at)) for at, one in enumerate(group_ids)]
        name = new_id()
        content, _ = build_segment(name, {record_owner(one): [StoredRecord(one, encode(one))] for one in groups})
        store.objects.put(segment_key(store.keys, name), content)
        index_segment(store.redis, store.keys, store.objects, name)

    return close


@pytest.fixture
def start(settings, claim_seconds):
    """``start(member)``: a process that prints each group, and acknowledges it when it reads ``ack``."""
    members = []

    def start(name):
        environment = os.environ | settings.environment() | {"AGENT_LAYER_CLAIM_SECONDS": str(claim_seconds)}
        member = subprocess.Popen(
            [sys.executable, "-c", MEMBER, name],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        members.append(member)
        return member

    yield start
    for member in members:
        member.kill()
        member.wait()
        member.stdin.close()
        member.stdout.close()


def heard(member):
    return read_line(member).strip()


def say(member, word):
    member.stdin.write(f"{word}\n")


def test_a_killed_members_groups_go_to_another_one(store, close, start):
    close("g", "h", "i")
    one = start("one")
    assert heard(one) == "g"
    say(one, "ack")
    assert (heard(one), heard(one)) == ("acked", "h")
    other = store.follow("c", "r", member="other", wait_seconds=scaled(60))
    assert next(other).group.group_id == "i"

    one.kill()
    handed_on = next(other)

    assert handed_on.group.group_id == "h"
    assert handed_on.ack() == "acked"


def test_a_killed_member_that_starts_again_need_not_wait(store, close, start):
    close("g", "h")
    one = start("one")
    assert heard(one) == "g"
    one.kill()
    one.wait()

    again = store.follow("c", "r", member="one", wait_seconds=0)

    assert [delivery.group.group_id for delivery in again] == ["g", "h"]


def test_a_member_that_is_busy_for_long_keeps_its_groups(store, close, start, claim_seconds):
    close("g")
    one = start("one")
    assert heard(one) == "g"

    assert list(store.follow("c", "r", member="other", wait_seconds=2 * claim_seconds)) == []

    say(one, "ack")
    assert heard(one) == "acked"


def test_a_stopped_member_loses_its_groups_and_is_told_when_it_goes_on(store, close, start):
    close("g", "h")
    one = start("one")
    assert heard(one) == "g"
    one.send_signal(signal.SIGSTOP)
    other = store.follow("c", "r", member="other", wait_seconds=scaled(60))
    handed_on = [next(other), next(other)]
    assert sorted(delivery.group.group_id for delivery in handed_on) == ["g", "h"]

    say(one, "ack")
    one.send_signal(signal.SIGCONT)

    assert heard(one) == "late"
    assert {delivery.group.group_id: delivery.is_held() for delivery in handed_on} == {"g": False, "h": True}
    close("i")
    assert heard(one) == "i"


@pytest.fixture
def without_collector():
    """Nothing goes but what nothing refers to."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_what_nobody_refers_to_any_more_lapses(store, close, claim_seconds):
    close("g", "h")
    store.redis.script_flush()  # so that the first renewal meets an error, which must not refer to what is renewed
    renewals = threading.active_count()
    iterator = store.follow("c", "r", member="one", wait_seconds=0)
    kept = next(iterator)
    del iterator
    other = store.follow("c", "r", member="other", wait_seconds=2 * claim_seconds)
    assert [(delivery.group.group_id, delivery.ack()) for delivery in other] == [("h", "acked")]
    del kept

    handed_on = next(store.follow("c", "r", member="third", wait_seconds=scaled(60)))

    assert handed_on.group.group_id == "g"
    assert threading.active_count() <= renewals + 2
