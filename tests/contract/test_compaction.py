"""This file holds what compaction promises: the same answers from fewer objects, and no byte of the dead."""

import threading

import pytest

from agent_layer.errors import BadInputError, CorruptRecordError, LeaseLostError
from agent_layer.schema.codec import decode, owner_of
from agent_layer.schema.group import Group
from agent_layer.schema.policy import PolicyVersion
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, PromptDelta, StepPart
from agent_layer.store.commit import commit_segments
from agent_layer.store.packing import Limits
from agent_layer.store.policies import list_policies
from agent_layer.store.rebuild import drop_index, index_segment
from agent_layer.store.segments import find_frames, read_footer, segment_key, unpack
from agent_layer.store.tombstones import forget, write_tombstones

NOW = Limits(least_age_seconds=-1.0, wait_seconds=0.2)
"""What was written a moment ago is merged, too."""
SECRET = "c4rd-4929-1853"


def attempt_of(tid, at=100.0, score=1.0, text="hello"):
    """Everything that one accepted attempt with a call leaves behind, in three parts."""
    own = {"trajectory_id": tid, "run": "r"}
    rollout = {"rollout_id": tid.rpartition("-")[0], "group_id": "g"}
    part = {**own, "source": "gateway", "agent": "solver", "call_id": f"{tid}/a"}
    answer = Action(
        message={"role": "assistant", "content": text},
        response_token_ids=TokenIds([3, 4]),
        logprobs=Logprobs([-0.5, -1.0]),
        policy_versions=[(4, 2)],
    )
    return [
        [
            AttemptStarted(**own, **rollout, attempt=0, task_id="t", started_at=at, labels={"secret": text}),
            StepPart(**part, phase="start", at=at + 1, prompt=PromptDelta(delta=TokenIds([1, 2]))),
        ],
        [
            Content(trajectory_id=tid, hash=f"hash of {text}", body=f'"{text}"'.encode()),
            StepPart(**part, phase="end", at=at + 2, actions=[answer], status="ok"),
        ],
        [
            Reward(**own, reward_id=f"{tid}/r", at=at + 3, score=score),
            Outcome(**own, status="completed", ended_at=at + 4, num_calls=1),
            Accepted(**own, **rollout, accepted_at=at + 5),
        ],
    ]


def group_of(group_id, *members, at=9.0):
    return Group(
        group_id=group_id, run="r", task_id="t", closed_at=at, group_size=len(members), trajectory_ids=list(members)
    )


def fill(write, num_attempts=6):
    """Each attempt in three segments, neighbours in one."""
    parts = [attempt_of(f"x.{number}-0", at=100.0 + number) for number in range(num_attempts)]
    for number in range(0, num_attempts, 2):
        for first, second in zip(parts[number], parts[number + 1], strict=True):
            write(*first, *second)
    members = [f"x.{number}-0" for number in range(num_attempts)]
    write(group_of("g", *members[:3]), group_of("h", *members[3:], at=10.0))
    write(PolicyVersion(run="r", number=0, location="w", created_at=1.0))
    return members


def answers(store):
    """What the store says about everything, for comparing."""
    page = store.query(limit=1_000)
    return (
        page.items,
        {row.trajectory_id: store.get(row.trajectory_id) for row in page.items},
        [(one.group, [t.trajectory_id for t in one.trajectories]) for one in store.follow("new", "r", wait_seconds=0)],
        list_policies(store.redis, store.keys, "r"),
    )


def segments_of(store):
    return list(store.objects.list(f"{store.keys.namespace}/seg/"))


def kill(store, *owners):
    """What a deletion does before it has bytes removed."""
    forget(store.redis, store.keys, owners, write_tombstones(store.keys, store.objects, owners, "deleted"))


def records_in(store):
    """All records of all segments: (owner, stored form)."""
    for key in segments_of(store):
        content = store.objects.get(key)
        for offset, size in find_frames(content)[:-1]:  # without the footer
            for stored in unpack(content[offset : offset + size], size, key):
                yield owner_of(decode(stored)), stored


def places_of(store, text):
    """Keys of objects that hold a text, packed or not."""
    for key in store.objects.list(""):
        content = store.objects.get(key)
        frames = find_frames(content) if key.endswith(".seg") else []
        unpacked = [one for at, size in frames for one in unpack(content[at : at + size], size, key)]
        if any(text.encode() in one for one in (content, *unpacked)):
            yield key


def test_many_small_segments_become_one_and_no_answer_changes(store, write):
    fill(write)
    before = answers(store)

    report = store.compact(limits=NOW)

    assert (report.num_segments, report.num_removed, report.num_made, report.num_left) == (11, 11, 1, 0)
    assert len(segments_of(store)) == store.redis.hlen(store.keys.segments) == 1
    assert report.findings == []
    assert answers(store) == before
    assert store.check().findings == []
    store.reindex(drop=True)
    assert answers(store) == before


def test_the_merged_segment_has_one_chunk_per_trajectory_and_each_record_once(store, write):
    members = fill(write)
    write(*attempt_of(members[0])[0])
    once = sorted(set(records_in(store)))

    store.compact(limits=NOW)

    assert sorted(records_in(store)) == once
    assert all(len(store.redis.hkeys(store.keys.chunks(member))) == 1 for member in members)


def test_a_second_run_finds_nothing_to_do(store, write):
    fill(write)
    store.compact(limits=NOW)
    segments = segments_of(store)

    report = store.compact(limits=NOW)

    assert (report.num_removed, report.num_made) == (0, 0)
    assert segments_of(store) == segments


def test_a_dry_run_says_what_would_be_done_and_does_nothing(store, write):
    fill(write)
    segments = segments_of(store)

    report = store.compact(limits=NOW, dry_run=True)

    assert (report.num_removed, report.num_made, report.dry_run) == (11, 1, True)
    assert segments_of(store) == segments


def test_what_was_written_a_moment_ago_is_left_alone(store, write):
    fill(write)

    assert store.compact().num_removed == 0


@pytest.mark.parametrize("only_dead", [True, False])
def test_no_byte_of_the_dead_is_left(store, write, only_dead):
    fill(write, 4)
    for part in attempt_of("y.0-0", text=SECRET):
        write(*part, *attempt_of("y.1-0")[0])
    write(group_of(f"of {SECRET}", "y.0-0"))
    assert list(places_of(store, SECRET))
    kill(store, "y.0-0", f"group:of {SECRET}")
    before = answers(store)

    report = store.compact(limits=NOW, only_dead=only_dead)

    assert list(places_of(store, SECRET)) == []
    assert list(places_of(store, "y.0-0")) == []
    assert (report.num_left, report.findings) == (0, [])
    assert answers(store) == before
    assert store.check().findings == []
    store.reindex(drop=True)
    assert answers(store) == before


def test_only_dead_leaves_segments_alone_in_which_nobody_died(store, write):
    fill(write)
    whole = set(segments_of(store))
    write(*attempt_of("y.0-0")[0], *attempt_of("y.1-0")[0])
    kill(store, "y.0-0")

    assert store.compact(limits=NOW, only_dead=True).num_removed == 1
    assert whole < set(segments_of(store))


def test_the_dead_are_taken_out_of_the_lists_of_groups(store, write):
    fill(write, 4)
    write(group_of("mixed", "x.0-0", SECRET, "x.1-0"))
    for part in attempt_of(SECRET):
        write(*part)
    kill(store, SECRET)

    store.compact(limits=NOW)

    assert list(places_of(store, SECRET)) == []
    before = answers(store)
    store.reindex(drop=True)
    assert answers(store) == before


def test_a_group_that_lost_all_of_its_members_is_dead_too(store, write):
    write(group_of("lost", "x.0-0", "x.1-0"), *attempt_of("x.0-0")[0])
    kill(store, "x.0-0", "x.1-0")

    store.compact(limits=NOW, only_dead=True)

    assert list(records_in(store)) == segments_of(store) == []
    assert not store.redis.exists(store.keys.group("lost"))
    store.reindex(drop=True)
    assert not store.redis.exists(store.keys.group("lost"))


def test_whoever_dies_while_a_segment_is_being_merged_is_gone_after_the_next_run(store, write, monkeypatch):
    fill(write, 4)
    for part in attempt_of("y.0-0", text=SECRET):
        write(*part)
    stored = store.objects.put

    def put_and_kill(key, content):
        if "-merged-" in key and store.redis.hexists(store.keys.trajectory("y.0-0"), "run"):
            kill(store, "y.0-0")
        stored(key, content)

    monkeypatch.setattr(store.objects, "put", put_and_kill)
    assert store.compact(limits=NOW).num_left == 1
    assert store.query(labels={"secret": SECRET}).items == []

    assert store.compact(limits=NOW, only_dead=True).num_left == 0
    assert list(places_of(store, SECRET)) == []
    assert store.check().findings == []


def test_half_dead_segments_are_rewritten_at_once_and_others_later(store, write):
    limits = Limits(small_bytes=1, least_age_seconds=-1.0)
    mostly_dead = write(*attempt_of("y.0-0")[1], *attempt_of("x.0-0")[0][:1])
    mostly_alive = write(*attempt_of("y.0-0")[0][:1], *[one for part in attempt_of("x.1-0") for one in part])
    kill(store, "y.0-0")

    assert store.compact(limits=limits).num_removed == 1
    assert segment_key(store.keys, mostly_dead) not in segments_of(store)
    assert segment_key(store.keys, mostly_alive) in segments_of(store)

    later = Limits(small_bytes=1, least_age_seconds=-1.0, dead_seconds=0.0)
    assert store.compact(limits=later).num_removed == 1
    assert segment_key(store.keys, mostly_alive) not in segments_of(store)


def test_readers_read_during_compactions(store, write):
    members = fill(write)
    expected = answers(store)
    stop, failures = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                assert {member: store.get(member) for member in members} == expected[1]
                assert answers(store) == expected
                assert store.check().findings == []
            except Exception as error:  # noqa: BLE001  # whatever it is, the test is to tell
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(6):
        assert store.compact(limits=NOW).num_removed == (11 if number == 0 else 12)
        fill(write)  # all of it again, so that there is something to do
    stop.set()
    for reader in readers:
        reader.join()

    assert failures == []


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_rebuild_that_read_segments_before_they_were_merged_does_not_bring_them_back(store, write, is_dropped):
    fill(write)
    before = answers(store)
    names = [name.decode() for name in store.redis.hkeys(store.keys.segments)]
    read = [read_footer(store.objects, segment_key(store.keys, name)) for name in names]

    store.compact(limits=NOW)
    if is_dropped:
        drop_index(store.redis, store.keys)
    commit_segments(store.redis, store.keys, read, again=True)
    store.reindex()
    store.compact(limits=NOW)

    assert store.check().findings == []
    assert answers(store) == before


def test_a_log_that_is_shipped_again_after_its_segment_was_merged_goes_again(store, write):
    fill(write)
    before = answers(store)
    name = store.redis.hkeys(store.keys.segments)[0].decode()
    key = segment_key(store.keys, name)
    content = store.objects.get(key)
    store.compact(limits=NOW)

    store.objects.put(key, content)
    index_segment(store.redis, store.keys, store.objects, name)
    assert answers(store) == before
    assert store.check().findings == []

    assert store.compact(limits=NOW).num_removed == 1
    assert len(segments_of(store)) == 1
    assert answers(store) == before
    assert store.check().findings == []


def test_a_segment_of_a_replaced_name_that_says_more_is_kept(store, write, put):
    fill(write)
    name = write(*attempt_of("z.0-0")[0])
    store.compact(limits=NOW)
    put_as = segment_key(store.keys, name)
    other = put(*attempt_of("z.0-0")[0], *attempt_of("z.0-0")[1])
    content = store.objects.get(segment_key(store.keys, other))
    store.objects.delete(segment_key(store.keys, other))
    store.objects.put(put_as, content)
    store.redis.sadd(store.keys.rewrite, name)

    store.compact(limits=NOW)
    store.reindex(drop=True)

    assert store.row("z.0-0").policy_max == 4


def test_a_segment_that_is_gone_is_named_and_the_others_are_merged(store, write):
    fill(write)
    gone = write(*attempt_of("z.0-0")[0])
    store.objects.delete(segment_key(store.keys, gone))

    report = store.compact(limits=NOW)

    assert [(one.kind, one.subject) for one in report.findings] == [("missing", gone)]
    assert report.num_removed == 11


def test_a_damaged_segment_is_named_and_left_alone(store, write):
    fill(write)
    bad = write(*attempt_of("z.0-0")[0], *attempt_of("y.0-0")[0])
    key = segment_key(store.keys, bad)
    content = bytearray(store.objects.get(key))
    content[20] ^= 1
    store.objects.put(key, bytes(content))
    kill(store, "y.0-0")

    report = store.compact(limits=NOW)

    assert [(one.kind, one.subject) for one in report.findings] == [("corrupt", bad)]
    assert (report.num_removed, report.num_left) == (11, 1)
    assert store.objects.get(key) == bytes(content)
    assert [one.subject for one in store.compact(limits=NOW, only_dead=True).findings] == [bad]


def test_nothing_goes_when_what_was_stored_is_not_what_is_read_back(store, write, monkeypatch):
    fill(write)
    before, stored = answers(store), store.objects.put
    monkeypatch.setattr(store.objects, "put", lambda key, content: stored(key, content[:-1] + b"!"))

    with pytest.raises(CorruptRecordError, match="found other bytes"):
        store.compact(limits=NOW)

    assert len(segments_of(store)) == 11
    assert answers(store) == before


def test_one_at_a_time(store, write):
    fill(write)
    store.redis.set(store.keys.compacting, "another", px=5_000)

    with pytest.raises(LeaseLostError, match="another process at work"):
        store.compact(limits=NOW)


def test_an_index_that_is_being_rebuilt_is_not_gone_by(store, write):
    fill(write)
    store.redis.hset(store.keys.reindexing, "done_to", "")

    with pytest.raises(BadInputError, match="rebuild"):
        store.compact(limits=NOW)


def test_two_at_once_do_no_harm(store, write, monkeypatch):
    """Both have read all segments before the first one stores what they become."""
    fill(write)
    before, stored = answers(store), store.objects.put
    others = []

    def put(key, content):
        if not others:
            others.append("runs")
            store.redis.delete(store.keys.compacting)
            others.append(store.compact(limits=NOW))
            store.redis.delete(store.keys.compacting)
        stored(key, content)

    monkeypatch.setattr(store.objects, "put", put)
    store.compact(limits=NOW)
    monkeypatch.undo()

    assert answers(store) == before
    assert store.check().findings == []
    store.compact(limits=NOW)
    assert len(segments_of(store)) == 1
    store.reindex(drop=True)
    assert answers(store) == before
