"""The index against plain Python, after commits, replays, rewards and deletions in any order."""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from agent_layer.schema.codec import encode, record_owner
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Label, Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.index.aggregate import count_trajectories, summarise_trajectories
from agent_layer.store.index.commit import commit_segments
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.index.index import Index
from agent_layer.store.maintenance.index_audit import count_orphan_bits, find_inconsistent_rows
from agent_layer.store.segments.format import StoredRecord, build_segment

from ...profiles import num_examples

NUM_FILLERS, NUM_SUBJECTS = 2_044, 8
AT = 1_000.0


def make_pieces(name: str, chance) -> list[list]:
    """The records of one trajectory, as several segments have them."""
    own = {"trajectory_id": name, "run": chance.choice("rs")}
    rollout = {"rollout_id": name[:-2]}
    version, agent = chance.randrange(5), chance.choice(["actor", "critic"])
    action = Action(policy_versions=[(version, 1)])
    part = {**own, "call_id": "c", "source": "gateway", "agent": agent}
    labels = {"k": chance.choice("vw")}
    status = chance.choice(["completed", "failed", "truncated"])
    cause = "infra" if status == "failed" else None

    def label(number):
        given = {"name": chance.choice("kl"), "value": chance.choice(["v", "w", None]), "at": AT + chance.randrange(3)}
        return Label(**own, **given, label_id=f"{name}/{number}")

    return [
        [AttemptStarted(**own, **rollout, attempt=0, task_id="t", started_at=AT + chance.randrange(9), labels=labels)],
        [StepPart(**part, phase="start", at=AT)],
        [StepPart(**part, phase="end", at=AT + 1, actions=[action] * chance.randrange(1, 3))],
        [Reward(**own, reward_id=f"{name}/1", at=AT + 2, score=chance.choice([0.0, 1.0, -3.0]))],
        [Outcome(**own, status=status, cause=cause, ended_at=AT + 3), Accepted(**own, **rollout, accepted_at=AT + 4)],
        [Reward(**own, reward_id=f"{name}/2", at=AT + 5, score=chance.choice([0.5, None]), supersedes=f"{name}/1")],
        [label(1), label(2)],
        [label(3)],
    ]


class Model:
    """What an index of some segments should answer; the dead stay dead."""

    def __init__(self) -> None:
        self.records: defaultdict[str, list] = defaultdict(list)
        self.dead: set[str] = set()

    def trajectories(self):
        return [assemble_trajectory(name, records) for name, records in self.records.items() if name not in self.dead]


class Subject:
    """An index, and how segments enter it."""

    def __init__(self, redis, keys) -> None:
        self.redis, self.keys, self.index = redis, keys, Index(redis, keys)

    def commit(self, records, *, again: bool = False, name: str | None = None) -> None:
        owned = defaultdict(list)
        for record in records:
            owned[record_owner(record)].append(StoredRecord(record, encode(record)))
        _, sealed = build_segment(name or new_id(), owned)
        commit_segments(self.redis, self.keys, [sealed], again=again)


def read_counts(trajectories) -> dict[str, int]:
    """By filter, in plain Python."""
    tests = {
        "all": bool,
        "completed": lambda one: one.outcome and one.outcome.status == "completed",
        "running": lambda one: one.started and not one.outcome,
        "failed": lambda one: one.outcome and one.outcome.status == "failed",
        "accepted": lambda one: one.accepted,
        "rewarded": lambda one: one.reward is not None and one.reward >= 0.5,
        "low": lambda one: one.reward is not None and one.reward < 0,
        "policy": lambda one: any(
            version >= 3 for step in one.steps for version, _ in step.action.policy_versions or ()
        ),
        "critic": lambda one: any(step.agent == "critic" for step in one.steps),
        "label": lambda one: one.labels.get("k") == "v",
        "given": lambda one: one.labels.get("l") == "w",
    }
    return {name: sum(bool(passes(one)) for one in trajectories) for name, passes in tests.items()}


FILTERS = {
    "all": {},
    "completed": {"status": "completed"},
    "running": {"status": "running"},
    "failed": {"status": "failed"},
    "accepted": {"accepted": True},
    "rewarded": {"reward": (0.5, None)},
    "low": {"reward": (None, -0.001)},
    "policy": {"policy": (3, None)},
    "critic": {"agent": "critic"},
    "label": {"labels": {"k": "v"}},
    "given": {"labels": {"l": "w"}},
}

moves = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "replay", "again", "forget"]),
        st.integers(0, 8 * NUM_SUBJECTS - 1),
    ),
    min_size=10,
    max_size=60,
)


@pytest.fixture
def subject(redis, keys):
    """Almost one block of trajectories that do not matter: those that do lie in two."""
    subject = Subject(redis, keys)
    own = {"attempt": 0, "run": "f", "task_id": "t", "started_at": 1.0}
    names = [f"f.{number}" for number in range(NUM_FILLERS)]
    subject.commit([AttemptStarted(**own, trajectory_id=f"{name}-0", rollout_id=name) for name in names])
    return subject


def test_whatever_happens_in_whatever_order_the_index_says_what_is_stored(subject):
    @hypothesis_settings(max_examples=num_examples(30, in_default=4), suppress_health_check=list(HealthCheck))
    @given(moves, st.randoms(use_true_random=False))
    def check(wanted, chance):
        model, names = Model(), [f"{new_id()}.0-0" for _ in range(NUM_SUBJECTS)]
        pieces = [(new_id(), piece) for name in names for piece in make_pieces(name, chance)]
        for move, number in wanted:
            name, records = pieces[number]
            owner = records[0].trajectory_id
            if move == "forget":
                apply_tombstones(subject.redis, subject.keys, [owner], 1.0)
                model.dead.add(owner)
                continue
            for _ in range(2 if move == "replay" else 1):
                subject.commit(records, again=move == "again", name=name)
            model.records[owner] += [one for one in records if one not in model.records[owner]]
        compare(subject, model, names)
        apply_tombstones(subject.redis, subject.keys, names, 2.0)
        compare(subject, Model(), names)

    check()


def compare(subject, model, names) -> None:
    living = model.trajectories()
    index = subject.index
    expected = read_counts(living)
    found = {name: count_trajectories(index, {"since": 2.0, **fields}) for name, fields in FILTERS.items()}
    assert found == expected
    assert count_trajectories(index, {}) == NUM_FILLERS + len(living)
    assert count_trajectories(index, {"status": "running"}) == NUM_FILLERS + expected["running"]
    by_run = {line.by["run"]: line.count for line in summarise_trajectories(index, ["run"], {"since": 2.0})}
    assert sum(by_run.values()) == len(living)
    assert list(find_inconsistent_rows(index, names)) == []
    assert count_orphan_bits(subject.redis, subject.keys) == {}
    assert [row.trajectory_id for row in index.rows(sorted(model.dead))] == []
    labels = {row.trajectory_id: row.labels for row in index.rows(names)}
    assert labels == {one.trajectory_id: one.labels for one in living}
