"""Attempts that change hands: every kept token of the policy is trained once, an abandoned one never."""

import asyncio

from hypothesis import given, strategies as st

from agent_layer.cli.ui.trajectory_text import describe_trajectory
from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.finalize import Finalizer
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.resume import AttemptResumption
from agent_layer.gateway.rollouts.retries import ResponseCache
from agent_layer.gateway.rollouts.rollout import EndedCall, new_rollout
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.rollout import AttemptStarted, Resumed
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.schema.wire.gateway_api import OpenRequest, Resumption
from agent_layer.settings import Settings
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.reading.display import show_trajectory
from trainer_adapter.data.samples import samples_of

STARTED = AttemptStarted(trajectory_id="t-0", rollout_id="t", attempt=0, run="r", task_id="q", started_at=0.0)


class _Log:
    def __init__(self):
        self.records = []

    def append(self, *records):
        self.records += records
        return "log"

    def has_room(self):
        return True

    def is_settled(self, _):
        return True


class Life:
    """One attempt at the gateway: its calls, its checkpoints, and the holders that resume from them."""

    def __init__(self):
        self.log = _Log()
        rollouts = RolloutRegistry(1e9, Counters())
        finalizer = Finalizer(
            settings=Settings(), rollouts=rollouts, log=self.log, redis=None, keys=Keys("n"), cache=ResponseCache()
        )
        self.resumption = AttemptResumption(rollouts=rollouts, finalizer=finalizer, counters=Counters())
        self.held = rollouts.add(new_rollout(OpenRequest(task_id="q", rollout_id="t"), "r"))
        self.path = []
        """What the agent has in its mind: kept calls, each with the tokens up to its end."""
        self.checkpoints = []
        self.num_calls = 0

    def call(self, delta, answer, status, version):
        """The agent asks on behind all that it knows of; a call that did not end well it asks again."""
        call_id, at = f"c{self.num_calls}", float(self.num_calls)
        self.num_calls += 1
        parent, length = self.path[-1] if self.path else (None, 0)
        action = Action(
            response_token_ids=TokenIds(answer),
            logprobs=Logprobs([-1.0] * len(answer)),
            policy_versions=[(version, len(answer))],
        )
        own = {"trajectory_id": "t-0", "call_id": call_id, "run": "r", "source": "gateway"}
        prompt = PromptDelta(delta=TokenIds(delta), parent_call=parent, prefix_length=length)
        self.log.append(
            StepPart(**own, phase="start", at=at, role="policy"),
            StepPart(
                **own,
                phase="end",
                at=at + 0.5,
                prompt=prompt,
                actions=[action],
                status=status,
                capture_level="tokens",
                temperature=1.0,
            ),
        )
        self.held.record_start(call_id, [])
        self.held.record_end(EndedCall(call_id, len(answer), is_of_policy=True, question_id=call_id))
        if status == "ok":
            self.path.append((call_id, length + len(delta) + len(answer)))

    def save(self):
        self.checkpoints.append((self.resumption.mark(self.held), list(self.path), self.num_calls))

    def resume(self, which):
        """Go on from one of the checkpoints; those that came after it are gone."""
        del self.checkpoints[which + 1 :]
        mark, path, _ = self.checkpoints[which]
        self.held, _ = asyncio.run(
            self.resumption.resume("t-0", Resumption(calls=mark.calls, seconds=mark.seconds, worker="w"))
        )
        self.path = list(path)


ids = st.lists(st.integers(0, 99), min_size=1, max_size=4)
moves = st.lists(
    st.tuples(st.just("call"), ids, ids, st.sampled_from(["ok", "ok", "ok", "aborted", "error"]), st.integers(0, 3))
    | st.tuples(st.just("save"))
    | st.tuples(st.just("resume"), st.integers(0, 9)),
    max_size=30,
)


def live(expected):
    """Let it happen; give the life, and by a model of its own which calls are kept."""
    life, kept = Life(), []
    life.save()
    kept_at = [[]]
    for move, *about in expected:
        match move:
            case "call":
                kept.append(f"c{life.num_calls}")
                life.call(*about)
            case "save":
                life.save()
                kept_at.append(list(kept))
            case _:
                which = len(kept_at) - 1 - about[0] % min(2, len(kept_at))
                life.resume(which)
                kept, kept_at = list(kept_at[which]), kept_at[: which + 1]
    return life, kept


@given(moves, st.randoms())
def test_every_kept_token_is_trained_once_and_an_abandoned_one_never(expected, random):
    life, kept = live(expected)
    records = [STARTED, *life.log.records] * 2
    random.shuffle(records)

    trajectory = assemble_trajectory("t-0", records)
    found = samples_of(trajectory)

    steps = {step.call_id: step for step in trajectory.steps}
    trained = [ref.call_id for sample in found.samples for ref in sample.steps]
    assert sorted(trained) == sorted(name for name in kept if steps[name].status == "ok")
    sampled = sum(len(step.action.response_token_ids) for step in trajectory.steps)
    assert sum(sum(one.loss_mask) for one in found.samples) + sum(drop.num_tokens for drop in found.drops) == sampled
    assert {name: steps[name].status for name in steps if name not in kept} == dict.fromkeys(
        set(steps) - set(kept), "aborted"
    )
    assert {name for name, step in steps.items() if "abandoned" in step.findings} == set(steps) - set(kept)


@given(moves)
def test_a_conversation_that_changed_hands_is_one_sample_all_the_same(expected):
    life, _ = live(expected)

    found = samples_of(assemble_trajectory("t-0", [STARTED, *life.log.records]))

    assert len(found.samples) == min(1, len(life.path))


@given(moves)
def test_only_what_is_kept_is_paid_for(expected):
    life, kept = live(expected)

    tokens = {
        step.call_id: len(step.action.response_token_ids)
        for step in assemble_trajectory("t-0", [STARTED, *life.log.records]).steps
    }
    totals = life.held.totals
    assert totals.num_started - len(totals.abandoned) == len(kept)
    assert totals.num_sampled == sum(tokens[name] for name in kept)
    assert totals.num_started == totals.num_ended == life.num_calls


def test_a_trajectory_shows_who_went_on_with_it():
    resumed = Resumed(trajectory_id="t-0", run="r", at=1.0, worker="w-2", abandoned=["c0"])
    trajectory = assemble_trajectory("t-0", [STARTED, resumed])

    shown = show_trajectory(TrajectoryRow(trajectory_id="t-0"), trajectory)

    assert trajectory.resumes == [resumed]
    lines = [line for block in describe_trajectory(shown) for line in block.lines]
    assert "resumed 1970-01-01T00:00:01.000Z by w-2, 1 call abandoned" in lines
