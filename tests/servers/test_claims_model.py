"""Claims against a model in plain Python: after any sequence of events both agree."""

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, settings as hypothesis_settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent_layer.errors import LeaseLostError
from agent_layer.schema.ids import new_id
from agent_layer.schema.rollout import Group
from agent_layer.store.consumers.claims import Claim, Claims, Consumer, acknowledge
from agent_layer.store.segments.format import segment_key

from ..profiles import num_examples

MEMBERS = ("one", "two", "three")
SPLITS = ("train", "eval")
MAX_SESSIONS = 8


@dataclass
class Model:
    groups: dict[str, Group] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """Groups that the index has lost until it is rebuilt."""
    acked: set[str] = field(default_factory=set)
    holder: dict[str, str] = field(default_factory=dict)
    """Member by group."""
    sessions: dict[tuple[str, str], object] = field(default_factory=dict)
    """By member and split."""
    lapsed: set[tuple[str, str]] = field(default_factory=set)

    def held_by(self, who: Consumer) -> list[str]:
        held = [self.groups[one] for one, member in self.holder.items() if member == who.member]
        return [one.group_id for one in in_order(held) if who.split in (None, one.split)]

    def is_superseded(self, who: Consumer, session: object) -> bool:
        return any(self.sessions.get((who.member, split), session) is not session for split in list_splits(who))

    def show(self, who: Consumer, session: object) -> None:
        for split in list_splits(who):
            self.sessions[who.member, split] = session
            self.lapsed.discard((who.member, split))

    def hand_on(self, who: Consumer) -> None:
        for member, split in list(self.lapsed):
            if member != who.member and split in list_splits(who):
                self.lapsed.discard((member, split))
                self.sessions.pop((member, split))
                for one in self.held_by(Consumer("c", who.run, split, member)):
                    del self.holder[one]

    def first_due(self, who: Consumer) -> Group | None:
        due = [
            group
            for one, group in self.groups.items()
            if one not in self.lost | self.acked | self.holder.keys() and who.split in (None, group.split)
        ]
        return next(iter(in_order(due)), None)


def in_order(groups):
    return sorted(groups, key=lambda group: (group.closed_at, group.group_id))


def list_splits(who):
    return (who.split,) if who.split else SPLITS


class ClaimsMachine(RuleBasedStateMachine):
    def __init__(self, store, write) -> None:
        super().__init__()
        self.store, self.write = store, write
        self.run = new_id()
        self.model = Model()
        self.numbers = count()
        self.segments: list[str] = []
        self.sessions: list[tuple[Consumer, Claims]] = []
        self.given: list[tuple[Consumer, Claims, str]] = []

    @initialize()
    def begin(self):
        self.start("one", "train")
        self.start("two", None)

    @rule(closed=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["train", "train", "eval"])), min_size=1))
    def close(self, closed):
        for closed_at, split in closed:
            group_id = f"{self.run}.{next(self.numbers)}"
            group = Group(group_id=group_id, run=self.run, task_id="t", closed_at=float(closed_at), split=split)
            self.model.groups[group_id] = group
        new = list(self.model.groups.values())[-len(closed) :]
        self.segments.append(self.write(*new))

    @precondition(lambda self: len(self.sessions) < MAX_SESSIONS)
    @rule(member=st.sampled_from(MEMBERS), split=st.sampled_from(["train", "train", "eval", None]))
    def start_again(self, member, split):
        self.start(member, split)

    def start(self, member, split):
        who = Consumer("c", self.run, split, member)
        claims = Claims(self.store.redis, self.store.keys, who, claim_seconds=3600.0)
        assert claims.join() == self.model.held_by(who)
        self.model.show(who, claims)
        self.sessions.append((who, claims))

    @rule(choose=st.data(), most=st.sampled_from([None, 1, 2]))
    def take_one(self, choose, most):
        self.take(choose, most)

    def take(self, choose, most):
        who, claims = choose.draw(st.sampled_from(self.sessions[-4:]))
        if self.model.is_superseded(who, claims):
            with pytest.raises(LeaseLostError):
                claims.take("", most, None)
            return
        self.model.hand_on(who)
        self.model.show(who, claims)
        expected = self.model.first_due(who)
        found = claims.take("", most, None)
        if expected is None:
            assert found == "none"
        elif most is not None and len(self.model.held_by(who)) >= most:
            assert found == "full"
        else:
            assert isinstance(found, Claim)
            assert found.group == expected
            self.model.holder[expected.group_id] = who.member
            self.given.append((who, claims, expected.group_id))

    @rule(choose=st.data())
    def take_more(self, choose):
        for _ in range(4):
            self.take(choose, None)

    @precondition(lambda self: self.model.groups)
    @rule(choose=st.data())
    def acknowledge_unseen(self, choose):
        group_id = choose.draw(st.sampled_from(sorted(self.model.groups)[-4:]))
        acknowledge(self.store.redis, self.store.keys, Consumer("c", self.run), [group_id])
        self.model.acked.add(group_id)
        self.model.holder.pop(group_id, None)

    @precondition(lambda self: self.given)
    @rule(choose=st.data())
    def ack(self, choose):
        who, claims, group_id = choose.draw(st.sampled_from(self.given[-4:]))
        split = self.model.groups[group_id].split
        speaks = self.model.sessions.get((who.member, split)) is claims
        stands = speaks and self.model.holder.get(group_id) == who.member
        expected = "again" if group_id in self.model.acked else "acked" if stands else "late"
        assert claims.ack(group_id) == expected
        self.model.acked.add(group_id)
        self.model.holder.pop(group_id, None)

    @precondition(lambda self: self.given)
    @rule(choose=st.data())
    def postpone(self, choose):
        who, claims, group_id = choose.draw(st.sampled_from(self.given[-4:]))
        claims.postpone(group_id)
        if not self.model.is_superseded(who, claims) and self.model.holder.get(group_id) == who.member:
            del self.model.holder[group_id]

    @precondition(lambda self: self.given)
    @rule(choose=st.data())
    def ask(self, choose):
        who, claims, group_id = choose.draw(st.sampled_from(self.given))
        is_superseded = self.model.is_superseded(who, claims)
        assert claims.holds(group_id) == (not is_superseded and self.model.holder.get(group_id) == who.member)
        if not is_superseded:
            self.model.show(who, claims)

    @precondition(lambda self: self.model.sessions)
    @rule(choose=st.data())
    def lapse(self, choose):
        member, split = choose.draw(st.sampled_from(sorted(self.model.sessions)))
        members = self.store.keys.claims(self.run, "c", split, "members")
        self.store.redis.zadd(members, {member: 0}, xx=True)
        self.model.lapsed.add((member, split))

    @precondition(lambda self: self.model.groups)
    @rule()
    def lose_index(self):
        keys = self.store.keys
        self.store.redis.delete(keys.closed_groups(self.run), *map(keys.group, self.model.groups))
        self.model.lost = set(self.model.groups)

    @precondition(lambda self: self.model.lost)
    @rule()
    def rebuild_index(self):
        self.store.admin.reindex()
        self.model.lost.clear()

    @invariant()
    def what_is_held_is_held_once(self):
        held = [
            (group.decode(), member)
            for member in MEMBERS
            for split in SPLITS
            for group in self.store.redis.zrange(self.store.keys.claims(self.run, "c", split, "held", member), 0, -1)
        ]
        assert sorted(held) == sorted(self.model.holder.items())

    def teardown(self):
        for name in self.segments:
            self.store.objects.delete(segment_key(self.store.keys, name))


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here: claims lie in Redis."""
    return settings


def test_claims_do_what_their_model_does(store, write):
    run_state_machine_as_test(
        lambda: ClaimsMachine(store, write),
        settings=hypothesis_settings(
            max_examples=num_examples(80),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
