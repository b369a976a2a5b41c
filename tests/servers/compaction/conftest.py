"""Fixtures of compaction: attempts, and a search of every stored byte."""

import pytest

from agent_layer.engines.policies import list_policies
from agent_layer.schema.codec import decode, record_owner
from agent_layer.schema.group import Group
from agent_layer.schema.ids import new_id
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, PromptDelta, StepPart
from agent_layer.schema.training import PolicyVersion
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.segments.format import find_frames, unpack
from agent_layer.store.segments.tombstones import write_tombstones


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


class Scene:
    """A store, ways to write to it, and searches of its bytes."""

    attempt_of = staticmethod(attempt_of)
    group_of = staticmethod(group_of)

    def __init__(self, store, write):
        self._store = store
        self._write = write

    def fill(self, num_attempts=6):
        """Each attempt in three segments, neighbours in one."""
        parts = [attempt_of(f"x.{number}-0", at=100.0 + number) for number in range(num_attempts)]
        for number in range(0, num_attempts, 2):
            for first, second in zip(parts[number], parts[number + 1], strict=True):
                self._write(*first, *second)
        members = [f"x.{number}-0" for number in range(num_attempts)]
        self._write(group_of("g", *members[:3]), group_of("h", *members[3:], at=10.0))
        self._write(PolicyVersion(run="r", number=0, location="w", created_at=1.0))
        return members

    def answers(self):
        """Return every answer of the store, for comparison."""
        page = self._store.query(limit=1_000)
        return (
            page.items,
            {row.trajectory_id: self._store.get(row.trajectory_id) for row in page.items},
            [
                (one.group, [t.trajectory_id for t in one.trajectories])
                for one in self._store.follow(new_id(), "r", wait_seconds=0)
            ],
            list_policies(self._store.redis, self._store.keys, "r"),
        )

    def segments(self):
        return list(self._store.objects.list(f"{self._store.keys.namespace}/seg/"))

    def kill(self, *owners):
        """What a deletion does before it has bytes removed."""
        apply_tombstones(
            self._store.redis,
            self._store.keys,
            owners,
            write_tombstones(self._store.keys, self._store.objects, owners, "deleted"),
        )

    def records(self):
        """All records of all segments: (owner, stored form)."""
        for key in self.segments():
            content = self._store.objects.get(key)
            for offset, size in find_frames(content)[:-1]:  # without the footer
                for stored in unpack(content[offset : offset + size], size, key):
                    yield record_owner(decode(stored)), stored

    def places(self, text):
        """Keys of objects that hold a text, packed or not."""
        for key in self._store.objects.list(""):
            content = self._store.objects.get(key)
            frames = find_frames(content) if key.endswith(".seg") else []
            unpacked = [one for at, size in frames for one in unpack(content[at : at + size], size, key)]
            if any(text.encode() in one for one in (content, *unpacked)):
                yield key


@pytest.fixture
def scene(store, write):
    return Scene(store, write)
