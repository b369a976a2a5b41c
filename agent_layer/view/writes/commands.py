"""What may be ordered: one record for each POST route. The same functions as on the command line do the work."""

from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple, Protocol, TypeAlias

import msgspec

from agent_layer.dispatcher import Dispatcher, RunState
from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.schema import JsonObject, Label, Reward, RewardTopic
from agent_layer.store import Store, find_current_reward, make_label, read_known_labels, read_topic_rewards

Path: TypeAlias = Mapping[str, str]
"""Names in the address."""
Identity: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Comment: TypeAlias = Annotated[str, msgspec.Meta(max_length=4_000)]
MAX_NAMED = 100
"""Rollouts that the journal names one by one."""


class WriteTargets(NamedTuple):
    """Store and queue under the rights of an operator."""

    store: Store
    dispatcher: Dispatcher


class Plan(NamedTuple):
    """An order that was found to be possible."""

    subject: str
    """What is changed."""
    before: JsonObject
    """What is there now."""
    apply: Callable[[], JsonObject]
    """Carries it out; returns what is there then."""


class WriteCommand(Protocol):
    """The body of a request."""

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Look at what would change. Raises: NotFoundError, BadInputError: the order cannot be carried out."""
        ...


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A misspelt field is refused."""


class RewardOrder(_Body, frozen=True, kw_only=True):
    """Judge a trajectory, or a step or an agent of it. Earlier judgements stay, superseded."""

    score: float | msgspec.UnsetType | None = msgspec.UNSET
    """Left out: the current score stays, for a comment on it. Null withdraws it."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] = "reward"
    step: int | None = None
    agent: Identity | None = None
    comment: Comment | None = None

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find the judgement that this one supersedes."""
        trajectory_id, store = path["trajectory"], targets.store
        store.row(trajectory_id)
        scope = "step" if self.step is not None else "agent" if self.agent is not None else "rollout"
        topic: RewardTopic = (scope, self.name, self.step, self.agent)
        known = read_topic_rewards(store.redis, store.keys, trajectory_id, topic)
        current = find_current_reward(known, topic)
        score = self.score
        if isinstance(score, msgspec.UnsetType):
            if current is None:
                raise BadInputError(
                    f"reward {self.name!r} of trajectory {trajectory_id!r}: expected a score, found none, and no"
                    " earlier one to keep; send one"
                )
            score = current.score
        given = score

        def apply() -> JsonObject:
            reward = store.reward(
                trajectory_id, given, name=self.name, step=self.step, agent=self.agent, comment=self.comment
            )
            store.writer.await_shipped(f"reward of trajectory {trajectory_id!r}")
            return {**_reward_fields(reward), "reward": store.row(trajectory_id).reward}

        return Plan(trajectory_id, {} if current is None else _reward_fields(current), apply)


class LabelOrder(_Body, frozen=True, kw_only=True):
    """Label a trajectory. The earlier label of the name stays, superseded."""

    name: str
    """Up to 128 characters without '='."""
    value: str | None
    """Up to 256 characters. Null withdraws it."""
    comment: Comment | None = None

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find the label that this one supersedes. Raises: BadInputError: the name or value cannot be a label's."""
        trajectory_id, store = path["trajectory"], targets.store
        row = store.row(trajectory_id)
        known = read_known_labels(store.redis, store.keys, trajectory_id)
        make_label(row, self.name, self.value, {}, known, "")  # what is refused is not even noted

        def apply() -> JsonObject:
            label = store.label(trajectory_id, name=self.name, value=self.value, comment=self.comment)
            store.writer.await_shipped(f"label of trajectory {trajectory_id!r}")
            return {**_label_fields(label), "labels": store.row(trajectory_id).labels}

        return Plan(trajectory_id, {"name": self.name, "value": row.labels.get(self.name)}, apply)


class PauseOrder(_Body, frozen=True, kw_only=True):
    """Hand out no rollout of a run until it is resumed."""

    running: bool = False
    """Let attempts that run pause at their next step, too."""
    why: Annotated[str, msgspec.Meta(max_length=500)] = ""

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find whether it is paused, and why."""
        return _plan_of_run(
            targets, path, lambda run: targets.dispatcher.pause(run, running=self.running, why=self.why)
        )


class ResumeOrder(_Body, frozen=True, kw_only=True):
    """Hand out rollouts of a run again."""

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find whether it is paused, and why."""
        return _plan_of_run(targets, path, targets.dispatcher.resume)


class ShareOrder(_Body, frozen=True, kw_only=True):
    """Change a run's share beside others of the same priority."""

    weight: float | None = None
    quota: int | None = None
    """Most rollouts with workers at once; 0: no limit."""

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find weight and quota."""
        if self.weight is None and self.quota is None:
            raise BadInputError("share: expected weight or quota, found neither; send one of them")
        return _plan_of_run(
            targets, path, lambda run: targets.dispatcher.share(run, weight=self.weight, quota=self.quota), _share
        )


class DrainOrder(_Body, frozen=True, kw_only=True):
    """Let a worker claim nothing more, and exit when its rollouts have ended."""

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find whether it drains already. Raises: NotFoundError: it was not seen in the last day."""
        worker = path["worker"]

        def look() -> JsonObject:
            state = next((one for one in targets.dispatcher.workers() if one.worker == worker), None)
            if state is None:
                raise NotFoundError(
                    f"worker {worker!r}: expected one that was seen in the last day, found none; 'agent-layer"
                    " workers' lists them"
                )
            return {"is_draining": state.is_draining}

        def apply() -> JsonObject:
            targets.dispatcher.drain([worker])
            return look()

        return Plan(worker, look(), apply)


class _DeadOrder(_Body, frozen=True, kw_only=True):
    """Names dead rollouts, or a run: all of it."""

    rollouts: Annotated[list[Identity], msgspec.Meta(max_length=1_000)] = []
    run: Identity | None = None

    def _plan(self, dispatcher: Dispatcher, carry_out: Callable[[list[str]], JsonObject]) -> Plan:
        """Find the rollouts. Raises: NotFoundError: one is not dead. BadInputError: nothing is named, or both."""
        ids = self._ids(dispatcher)
        named = ids[:MAX_NAMED]
        subject = f"run {self.run}" if self.run else ", ".join(named)
        return Plan(subject, {"num_rollouts": len(ids), "rollouts": named}, lambda: carry_out(ids))

    def _ids(self, dispatcher: Dispatcher) -> list[str]:
        if bool(self.rollouts) == bool(self.run):
            raise BadInputError("dead letters: expected rollouts or a run, found both or neither; name one of them")
        if self.run:
            _run_state(dispatcher, self.run)
            return list(dict.fromkeys(dispatcher.inspector.listed_ids("dead", self.run)))
        ids = list(dict.fromkeys(self.rollouts))
        found = {state.rollout_id for state in dispatcher.inspector.dead(ids, len(ids))}
        if missing := [one for one in ids if one not in found]:
            raise NotFoundError(
                f"rollout {missing[0]!r}: expected one that was given up, found none; nothing was changed"
            )
        return ids


class RetryOrder(_DeadOrder, frozen=True, kw_only=True):
    """Run dead rollouts again from the beginning."""

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find the rollouts. Raises: NotFoundError: one is not dead. BadInputError: nothing is named, or both."""
        del path

        def queue(ids: list[str]) -> JsonObject:
            groups = targets.dispatcher.retry_dead(ids) if ids else []
            return {"num_groups": len(groups), "groups": groups[:MAX_NAMED]}

        return self._plan(targets.dispatcher, queue)


class DropOrder(_DeadOrder, frozen=True, kw_only=True):
    """Forget dead rollouts and their errors."""

    def plan(self, targets: WriteTargets, path: Path) -> Plan:
        """Find the rollouts. Raises: NotFoundError: one is not dead. BadInputError: nothing is named, or both."""
        del path

        def drop(ids: list[str]) -> JsonObject:
            return {"num_dropped": targets.dispatcher.drop_dead(ids) if ids else 0}

        return self._plan(targets.dispatcher, drop)


def _pause(state: RunState) -> JsonObject:
    return {"paused": state.paused}


def _share(state: RunState) -> JsonObject:
    return {"weight": state.weight, "quota": state.quota}


def _plan_of_run(
    targets: WriteTargets, path: Path, change: Callable[[str], None], look: Callable[[RunState], JsonObject] = _pause
) -> Plan:
    run, dispatcher = path["run"], targets.dispatcher

    def apply() -> JsonObject:
        change(run)
        return look(_run_state(dispatcher, run))

    return Plan(run, look(_run_state(dispatcher, run)), apply)


def _run_state(dispatcher: Dispatcher, run: str) -> RunState:
    if found := dispatcher.runs([run]):
        return found[0]
    raise NotFoundError(f"run {run!r}: expected one that was submitted, found none; 'agent-layer runs' lists them")


def _reward_fields(reward: Reward) -> JsonObject:
    return {"reward_id": reward.reward_id, "name": reward.name, "score": reward.score, "source": reward.source}


def _label_fields(label: Label) -> JsonObject:
    return {"label_id": label.label_id, "name": label.name, "value": label.value, "source": label.source}
