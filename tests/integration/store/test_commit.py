"""The index: replays and order change nothing, and it agrees with the records."""

import math
import struct
from collections import defaultdict
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.codec import encode, record_owner
from agent_layer.schema.ids import new_id
from agent_layer.schema.record import Advantages, Logprobs
from agent_layer.schema.reward import Label, Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome, Resumed
from agent_layer.schema.step import Action, Content, StepPart
from agent_layer.schema.task import RewardSpec, Task
from agent_layer.schema.training import ExcludedRollout, PolicyVersion, TrainedBatch, TrainedTokens
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.state.call_counts import CallCount, count_calls
from agent_layer.store.index.commit import commit_segments
from agent_layer.store.index.index import Index
from agent_layer.store.index.restore import enter_segments
from agent_layer.store.maintenance.index_audit import find_inconsistent_rows
from agent_layer.store.segments.fields import COLUMNS
from agent_layer.store.segments.format import SealedSegment, StoredRecord, build_segment

from ...profiles import num_examples

AT = 1_795_000_000.0
times = st.integers(0, 9).map(lambda second: AT + second / 7)
trajectory_ids = st.sampled_from(["r.0-0", "r.0-1", "stranger"])

starts = st.builds(
    AttemptStarted,
    trajectory_id=trajectory_ids,
    rollout_id=st.just("r.0"),
    attempt=st.just(0),
    run=st.just("run"),
    task_id=st.sampled_from(["t", "u"]),
    started_at=times,
    group_id=st.sampled_from([None, "g"]),
    rewards=st.sampled_from([{}, {"exact": RewardSpec(weight=2.0)}]),
    labels=st.sampled_from([{}, {"a": "b"}]),
    task=st.sampled_from([None, Task(id="t", run="run")]),
)
actions = st.builds(Action, policy_versions=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=2))
parts = st.builds(
    StepPart,
    trajectory_id=trajectory_ids,
    call_id=st.sampled_from(["c1", "c2", "c3"]),
    run=st.just("run"),
    source=st.sampled_from(["gateway", "hook"]),
    phase=st.sampled_from(["start", "end"]),
    at=times,
    agent=st.sampled_from([None, "actor", "critic"]),
    actions=st.none() | st.lists(actions, min_size=1, max_size=3),
)
rewards = st.builds(
    Reward,
    trajectory_id=trajectory_ids,
    reward_id=st.integers(0, 10**6).map(str),
    run=st.just("run"),
    at=times,
    name=st.sampled_from(["exact", "style"]),
    score=st.floats(-1, 1) | st.none() | st.sampled_from([math.nan, math.inf]),  # Redis sorts no NaN
)
labels = st.builds(
    Label,
    trajectory_id=trajectory_ids,
    label_id=st.sampled_from(["1", "2", "3"]),
    run=st.just("run"),
    at=times | st.sampled_from([math.nan, math.inf, -1.0]),
    name=st.sampled_from(["a", "what is it?", 'é"\0']),
    value=st.sampled_from(["b", "c=d", "\u2028", None]),
)
outcomes = st.builds(
    Outcome,
    trajectory_id=trajectory_ids,
    run=st.just("run"),
    status=st.sampled_from(["completed", "truncated", "failed", "lost"]),
    ended_at=times,
    cause=st.sampled_from([None, "policy", "infra"]),
)
acceptances = st.builds(
    Accepted, trajectory_id=trajectory_ids, rollout_id=st.just("r.0"), run=st.just("run"), accepted_at=times
)
groups = st.builds(
    Group, group_id=st.sampled_from(["g", "h"]), run=st.just("run"), task_id=st.just("t"), closed_at=st.just(AT)
)
policies = st.builds(
    PolicyVersion, run=st.just("run"), number=st.integers(0, 3), location=st.just("here"), created_at=st.just(AT)
)
batches = st.integers(1, 2).map(
    lambda n: TrainedBatch(
        run="run", batch_id=f"b{n}", step=n, policy_version=0, trained_at=AT, rollouts=[], num_samples=0, batch_hash="h"
    )
)
resumes = st.builds(Resumed, trajectory_id=trajectory_ids, run=st.just("run"), at=times, abandoned=st.just(["c1"]))
contents = st.builds(Content, trajectory_id=trajectory_ids, hash=st.just("hash"), body=st.just(b"1"))
trained = st.builds(
    TrainedTokens,
    trajectory_id=trajectory_ids,
    run=st.just("run"),
    batch_id=st.sampled_from(["b1", "b2"]),
    step=st.just(1),
    policy_version=st.just(0),
    at=times,
    calls=st.just([("c1", 0, 1)]),
    logprobs=st.just(Logprobs([-1])),
    advantages=st.just(Advantages([0.5])),
    mask=st.just(b"\x01"),
)
exclusions = st.builds(
    ExcludedRollout,
    trajectory_id=trajectory_ids,
    kind=st.sampled_from(["stale", "unreproducible:top_p"]),
    reason=st.just("why"),
    run=st.just("run"),
    step=st.just(1),
    at=times,
)
of_attempts = st.one_of(starts, parts, rewards, labels, outcomes, acceptances, contents, resumes, trained, exclusions)
records = st.one_of(of_attempts, groups, policies, batches)
property_settings = hypothesis_settings(
    max_examples=num_examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def segment_named(name: str) -> str:
    """A segment's name that begins with an id, and is the same for the same letter."""
    return new_id(lambda: int(AT * 1e9), lambda size: name.encode().ljust(size, b"-")[:size])


class Space:
    """An index of its own."""

    def __init__(self, redis, prefix: str) -> None:
        self.redis = redis
        self.keys = Keys(f"{prefix}-{uuid4().hex}")

    def commit(self, name: str, segment: list, *, again: bool = False) -> None:
        commit_segments(self.redis, self.keys, [self._seal(name, segment)], again=again)

    def _seal(self, name: str, segment: list) -> SealedSegment:
        by_owner = defaultdict(list)
        for record in segment:
            by_owner[record_owner(record)].append(record)
        stored = {owner: [StoredRecord(one, encode(one)) for one in ours] for owner, ours in by_owner.items()}
        return build_segment(segment_named(name), stored)[1]

    def enter(self, segments: dict[str, list], *, again: bool) -> None:
        sealed = [self._seal(name, found) for name, found in segments.items()]
        enter_segments(self.redis, self.keys, sealed, again=again)

    def contents(self) -> dict[str, object]:
        """All of the index but its events, and but for which ordinal a trajectory has: that is by order of merging."""
        found = {}
        for key in self.redis.scan_iter(match=self.keys.name("*")):
            name = key.decode().removeprefix(self.keys.name(""))
            if name.startswith("t:") and isinstance(row := self.value(key), dict):
                found[name] = {field: value for field, value in row.items() if field != b"ordinal"}
            elif not name.startswith(("b:", "events", "steps", "ordinals", "zones")):
                found[name] = self.value(key)
        return found | self.filed()

    def ids(self) -> dict[int, str]:
        """Trajectory by ordinal."""
        return {
            int(self.redis.hget(key, "ordinal")): key.decode().removeprefix(self.keys.trajectory(""))
            for key in self.redis.scan_iter(match=self.keys.trajectory("*"), _type="hash")
            if self.redis.hexists(key, "ordinal")
        }

    def filed(self) -> dict[str, object]:
        """What trajectories are filed under, and their numbers."""
        found, ids = {}, self.ids()
        for key in self.redis.scan_iter(match=self.keys.in_block(0, "*"), _type="string"):
            name = key.decode().removeprefix(self.keys.in_block(0, ""))
            if name in COLUMNS:
                stored = self.redis.get(key)
                numbers = {id_: struct.unpack_from("<d", stored, 8 * at)[0] for at, id_ in ids.items()}
                found[name] = {id_: repr(number) for id_, number in numbers.items()}
            else:
                found[name] = {id_ for at, id_ in ids.items() if self.redis.getbit(key, at)}
                assert self.redis.bitcount(key) == len(found[name])
        return found

    def value(self, key: bytes) -> object:
        match self.redis.type(key):
            case b"hash":
                return self.redis.hgetall(key)
            case b"zset":
                return self.redis.zrange(key, 0, -1, withscores=True)
            case b"set":
                return self.redis.smembers(key)
            case _:
                return self.redis.get(key)

    def clear(self) -> None:
        for key in self.redis.scan_iter(match=self.keys.name("*")):
            self.redis.delete(key)


@pytest.fixture
def space(redis, keys):
    return Space(redis, keys.namespace)


def identity(record) -> object:
    """Return a record's identity. Equal identities mean equal records: no rule orders two different ones."""
    match record:
        case Reward():
            return "reward", record.reward_id
        case AttemptStarted():
            return "started", record.trajectory_id, record.started_at, record.task is None
        case Outcome():
            return "outcome", record.trajectory_id, record.ended_at
        case StepPart():
            return "part", record.trajectory_id, record.call_id, record.source, record.phase
        case Group() | PolicyVersion() | TrainedBatch():
            return record_owner(record)
        case _:
            return encode(record)


segments_of = st.dictionaries(
    st.sampled_from("abcd"), st.lists(records, min_size=1, max_size=6), min_size=1, max_size=4
).map(lambda found: {name: [one for _, one in kept] for name, kept in _distinct(found).items()})


def _distinct(segments: dict[str, list]) -> dict[str, list]:
    chosen = {identity(one): (name, one) for name, ours in segments.items() for one in ours}
    kept = defaultdict(list)
    for key, (name, one) in chosen.items():
        kept[name].append((key, one))
    return kept


@property_settings
@given(segments_of, st.data())
def test_order_and_repetition_of_segments_change_nothing(redis, keys, segments, data):
    once, often = Space(redis, keys.namespace), Space(redis, keys.namespace)
    replays = data.draw(st.permutations([*segments, *segments]))

    for name, found in sorted(segments.items()):
        once.commit(name, found)
    for name in replays:
        often.commit(name, segments[name], again=data.draw(st.booleans()))

    assert often.contents() == once.contents()
    once.clear()
    often.clear()


@pytest.fixture
def few_suffice(monkeypatch):
    """Live commits enter new trajectories together, however few they are."""
    monkeypatch.setattr("agent_layer.store.index.restore._MIN_TOGETHER", 1)


@property_settings
@given(segments_of, st.data())
@pytest.mark.usefixtures("few_suffice")
def test_bulk_entry_arrives_at_what_commits_entered(redis, keys, segments, data):
    once, restored = Space(redis, keys.namespace), Space(redis, keys.namespace)
    early = data.draw(st.sets(st.sampled_from(sorted(segments))))
    first = data.draw(st.sets(st.sampled_from(sorted(segments))))

    for name, found in sorted(segments.items()):
        once.commit(name, found)
        if name in early:  # a shipper is quicker than the rebuild
            restored.commit(name, found)
    for some in (first, segments.keys() - first, segments.keys()):
        again = data.draw(st.booleans())
        restored.enter({name: segments[name] for name in sorted(some)}, again=again)

    assert restored.contents() == once.contents()
    assert list(find_inconsistent_rows(Index(redis, restored.keys), restored.ids().values())) == []
    once.clear()
    restored.clear()


@property_settings
@given(segments_of)
def test_the_index_says_what_the_trajectories_say(redis, keys, segments):
    space = Space(redis, keys.namespace)
    owned = defaultdict(list)
    for name, found in segments.items():
        space.commit(name, found)
        for record in found:
            owned[record_owner(record)].append(record)

    for trajectory_id, found in owned.items():
        if trajectory_id.startswith(("group:", "policy:", "batch:")) or all(isinstance(one, Content) for one in found):
            continue
        row = {
            name.decode(): value.decode() for name, value in redis.hgetall(space.keys.trajectory(trajectory_id)).items()
        }
        message = assemble_trajectory(trajectory_id, found)
        assert row.get("reward") == (None if message.reward is None else repr(message.reward))
        assert int(row.get("num_steps", 0)) == len(message.steps)
        assert ("accepted" in row) == (message.accepted is not None)
        status = message.outcome.status if message.outcome else "running" if message.started else None
        assert row.get("status") == status
        if message.started:
            assert float(row["started_at"]) == message.started.started_at
            assert row["task_id"] == message.started.task_id
        assert Index(redis, space.keys).rows([trajectory_id])[0].labels == message.labels
        for name in ("all", "run=run", *([f"status={status}"] if status else [])):
            assert trajectory_id in space.filed()[name]
    index = Index(redis, space.keys)
    assert list(find_inconsistent_rows(index, space.ids().values())) == []
    space.clear()


def test_calls_count_as_whole_only_when_the_gateways_start_and_end_are_stored(space):
    def part(call: str, source: str, phase: str) -> StepPart:
        return StepPart(trajectory_id="r.0-0", call_id=call, run="run", source=source, phase=phase, at=AT)

    space.commit("a", [part("c1", "gateway", "start"), part("c2", "hook", "start"), part("c2", "hook", "end")])
    assert count_calls(space.redis, space.keys, "r.0-0") == CallCount(started=1, ended=0)

    space.commit("b", [part("c1", "gateway", "end"), part("c3", "gateway", "end")])
    assert count_calls(space.redis, space.keys, "r.0-0") == CallCount(started=1, ended=1)


def test_a_long_trajectory_is_committed_in_several_calls(space):
    calls = [
        StepPart(trajectory_id="r.0-0", call_id=str(number), run="run", source="gateway", phase="start", at=AT)
        for number in range(600)
    ]
    space.commit("a", calls)

    assert count_calls(space.redis, space.keys, "r.0-0").started == 600
    assert space.redis.hget(space.keys.trajectory("r.0-0"), "num_steps") == b"600"


def test_a_group_and_its_event_are_entered_once(space):
    group = Group(group_id="g", run="run", task_id="t", closed_at=AT)
    space.commit("a", [group])
    space.commit("b", [group])

    assert space.redis.zrange(space.keys.closed_groups("run"), 0, -1, withscores=True) == [(b"g", AT)]
    events = [fields for _, fields in space.redis.xrange(space.keys.events)]
    assert events == [{b"kind": b"group", b"group_id": b"g", b"run": b"run"}]


def test_whoever_waits_for_events_hears_of_each_new_status_once(space):
    started = AttemptStarted(trajectory_id="r.0-0", rollout_id="r.0", attempt=0, run="run", task_id="t", started_at=AT)
    ended = Outcome(trajectory_id="r.0-0", run="run", status="completed", ended_at=AT + 1)
    for name, segment in {"a": [started], "b": [ended], "a again": [started], "b again": [ended]}.items():
        space.commit(name, segment)

    events = [fields for _, fields in space.redis.xrange(space.keys.events) if fields[b"kind"] == b"trajectory"]
    assert [fields[b"status"] for fields in events] == [b"running", b"completed"]
    assert "status=running" not in space.filed()
    assert space.redis.smembers(space.keys.values("status")) == {b"completed"}


def test_an_index_entry_says_where_the_bytes_lie(space):
    space.commit("a", [Content(trajectory_id="r.0-0", hash="h", body=b"1")])

    size = int(space.redis.hget(space.keys.segments, segment_named("a")))
    offset, chunk_size = map(int, space.redis.hget(space.keys.chunks("r.0-0"), segment_named("a")).split())
    assert (offset, 0 < chunk_size < size) == (0, True)
