"""Summaries of a segment's records for the index: they merge in any order.

Of several records of one kind, the one with the lowest rank counts. Ranks are compared as text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import (
    ENDED,
    STARTED,
    Accepted,
    Action,
    AttemptStarted,
    BatchEntry,
    Block,
    Chunk,
    Content,
    ContentRef,
    ExcludedRollout,
    Group,
    GroupEntry,
    Label,
    LogRecord,
    Observation,
    Outcome,
    PolicyEntry,
    PolicyVersion,
    Resumed,
    Reward,
    RewardTopic,
    SegmentFooter,
    StepPart,
    TrainedBatch,
    TrainedTokens,
    TrajectorySummary,
    decode,
    decode_known,
    encode,
    finding_kinds,
    id_timestamp,
    is_caller_note,
    known_time,
    label_rank,
    newest_labels,
    requested_tool_names,
    reward_topic,
    sortable_time,
    split_trajectory_id,
)
from agent_layer.store.segments.fields import FIELDS
from agent_layer.store.segments.outline import (
    ActionOutline,
    ObservationOutline,
    Outline,
    StepOutline,
    TrainedTokensOutline,
    decode_outline,
)

_FIELDS = {origin: [field for field in FIELDS if field.origin == origin] for origin in ("started", "outcome")}
_MAX_VERSION = 2**53
"""Redis and its scripts count exactly up to here."""

_KEPT_WHOLE = frozenset[type]({Reward, PolicyVersion, TrainedBatch, Group})
"""Records that the index holds in their stored form; it holds a few fields of the others.
A set of types, as a shipper asks this of every record: ``isinstance`` takes several times as long."""

OwnerEntry: TypeAlias = TrajectorySummary | PolicyEntry | BatchEntry | GroupEntry
_OfOneRecord: TypeAlias = PolicyVersion | TrainedBatch | Group
_OF_ONE_RECORD = frozenset[type]({PolicyVersion, TrainedBatch, Group})
_STEP_PARTS = frozenset[type]({StepOutline, StepPart})
_OBSERVATIONS = frozenset[type]({ObservationOutline, Observation})
_Other: TypeAlias = (
    TrainedTokensOutline
    | TrainedTokens
    | AttemptStarted
    | ContentRef
    | Reward
    | Label
    | Outcome
    | Accepted
    | Resumed
    | ExcludedRollout
)


class _OfTrajectory(NamedTuple):
    """Records of one trajectory, in order; contents say nothing to the index."""

    parts: list[StepOutline | StepPart]
    observations: list[ObservationOutline | Observation]
    others: list[_Other]


def read_record(content: bytes) -> Outline | LogRecord:
    """Read what the index needs of a record; one that the index keeps whole keeps its unknown fields, too.

    Raises: CorruptRecordError: these bytes are no record.
    """
    record = decode_outline(content)
    if type(record) not in _KEPT_WHOLE or encode(cast("LogRecord", record)) == content:
        return record
    return cast("LogRecord", decode(content))  # with fields that this version does not know


def describe_owner(records: Iterable[Outline | LogRecord]) -> list[OwnerEntry]:
    """Summarise the records that one segment holds of one owner."""
    entries: list[OwnerEntry] = []
    ours = _OfTrajectory([], [], [])
    trajectory_id: str | None = None
    for record in records:  # one pass, and the most frequent first: a trajectory has dozens of records
        kind = type(record)
        if kind in _STEP_PARTS:
            ours.parts.append(cast("StepOutline | StepPart", record))
        elif kind in _OBSERVATIONS:
            ours.observations.append(cast("ObservationOutline | Observation", record))
        elif kind in _OF_ONE_RECORD:
            entries.append(_make_entry(cast("_OfOneRecord", record)))
            continue
        elif kind is not Content:
            ours.others.append(cast("_Other", record))
        trajectory_id = trajectory_id or cast("_Other", record).trajectory_id
    return entries if trajectory_id is None else [*entries, _summarise_trajectory(trajectory_id, ours)]


def make_footer(
    name: str, chunks: Sequence[Chunk], entries: Sequence[OwnerEntry], replaces: Iterable[str] = ()
) -> SegmentFooter:
    """Make the footer of a segment from its parts."""
    return SegmentFooter(
        name=name,
        created_at=id_timestamp(name),
        chunks=list(chunks),
        trajectories=[one for one in entries if isinstance(one, TrajectorySummary)],
        policies=[one for one in entries if isinstance(one, PolicyEntry)],
        batches=[one for one in entries if isinstance(one, BatchEntry)],
        groups=[one for one in entries if isinstance(one, GroupEntry)],
        replaces=sorted(replaces),
    )


class JudgementParts(NamedTuple):
    """Rewards of a summary: those that may decide the reward of the rollout, and those of its steps and agents."""

    of_rollout: dict[str, bytes]
    of_parts: list[tuple[str, str, bytes]]
    """(reward id, id of the reward that it supersedes or '', record), oldest first."""
    topics: list[str]
    """Topic and id of each reward of a step or an agent."""
    read: dict[str, Reward]
    """All of them by id; reading a record takes longer than what is done with it."""


def split_rewards(rewards: Mapping[str, bytes]) -> JudgementParts:
    """Return apart what a commit has to read again, and what it need not, however many steps have a reward."""
    decoded = {reward_id: cast("Reward", decode_known(content)) for reward_id, content in rewards.items()}
    of_parts = sorted((one.at, name, one.supersedes or "") for name, one in decoded.items() if one.scope != "rollout")
    return JudgementParts(
        {name: rewards[name] for name, one in decoded.items() if one.scope == "rollout"},
        [(name, superseded, rewards[name]) for _, name, superseded in of_parts],
        [topic_prefix(reward_topic(decoded[name])) + name for _, name, _ in of_parts],
        decoded,
    )


def topic_prefix(topic: RewardTopic) -> str:
    """Return how the members of ``t:<trajectory>:topics`` begin that are of this topic; the reward's id follows."""
    return "".join(f"{'' if part is None else part}\0" for part in topic)


def _make_entry(record: _OfOneRecord) -> PolicyEntry | BatchEntry | GroupEntry:
    content, run = encode(record), record.run
    match record:
        case PolicyVersion():
            return PolicyEntry(run=run, number=str(record.number), record=content)
        case TrainedBatch():
            return BatchEntry(run=run, step=str(record.step), batch_id=record.batch_id, record=content)
        case Group():
            return GroupEntry(run=run, group_id=record.group_id, closed_at=_written(record.closed_at), record=content)


def _summarise_trajectory(trajectory_id: str, ours: _OfTrajectory) -> TrajectorySummary:
    parts, observations, others = ours
    started = [record for record in others if isinstance(record, AttemptStarted)]
    steps = _summarise_steps(parts)
    agents = steps.agents.union([one.agent for one in started])
    return TrajectorySummary(
        trajectory_id=trajectory_id,
        opening=_make_opening(started) if started else _guess_opening(trajectory_id, (*parts, *observations, *others)),
        is_started=bool(started),
        ending=_first(_make_ending(record) for record in others if isinstance(record, Outcome)),
        is_accepted=any(isinstance(record, Accepted) for record in others),
        calls=steps.calls,
        agents=sorted([one for one in agents if one is not None]),
        tools=sorted(steps.tools.union([one.name for one in observations])),
        engines=sorted([one for one in steps.engines if one is not None]),
        policy_min=min(steps.versions, default=None),
        policy_max=max(steps.versions, default=None),
        rewards={record.reward_id: encode(record) for record in others if isinstance(record, Reward)},
        blobs=sorted({record.blob for record in others if isinstance(record, ContentRef)}),
        findings=sorted(steps.findings.union(kind for record in others for kind in finding_kinds(record))),
        given_labels={
            name: (label_rank(label)[0], label.value)
            for name, label in sorted(newest_labels(one for one in others if isinstance(one, Label)).items())
        },
    )


def _first(blocks: Iterable[Block]) -> Block | None:
    return min(blocks, key=lambda block: block.rank, default=None)


def _make_opening(started: Iterable[AttemptStarted]) -> Block | None:
    """One that knows the task stands before one that does not, and that before all other records."""
    return _first(
        Block(f"{'0' if one.task else '1'} {sortable_time(one.started_at)}", _block_fields(one, "started"))
        for one in started
    )


def _guess_opening(
    trajectory_id: str, records: Iterable[StepOutline | StepPart | ObservationOutline | Observation | _Other]
) -> Block | None:
    """What stands in for an AttemptStarted that was lost or is on its way, so that nothing stored is out of reach."""
    at, run = min((found for record in records if (found := _read_time_and_run(record))), default=(None, ""))
    if at is None:
        return None
    fields = {"run": run, "started_at": _written(at)}
    try:
        rollout_id, attempt = split_trajectory_id(trajectory_id)
        fields |= {"rollout_id": rollout_id, "attempt": str(attempt)}
    except BadInputError:  # calls that came without a rollout of ours
        pass
    return Block(f"2 {sortable_time(at)}", fields)


def _read_time_and_run(
    record: StepOutline | StepPart | ObservationOutline | Observation | _Other,
) -> tuple[float, str] | None:
    """When a record was made, and in which run."""
    match record:
        case Outcome():
            return record.ended_at, record.run
        case Accepted():
            return record.accepted_at, record.run
        case ExcludedRollout(at=float(at), run=str(run)):
            return at, run
        case AttemptStarted() | ContentRef() | ExcludedRollout():
            return None
        case _:
            return record.at, record.run


def _block_fields(record: AttemptStarted | Outcome, origin: Literal["started", "outcome"]) -> dict[str, str]:
    """Fields that the record sets, as text; unknown ones are left out."""
    values = {
        field.name: _as_text(getattr(record, field.attribute or field.name), field.kind) for field in _FIELDS[origin]
    }
    return {name: value for name, value in values.items() if value is not None}


def _as_text(value: object, kind: str) -> str | None:
    if kind == "time":
        return _written(cast("float", value))
    if kind == "json":
        return msgspec.json.encode(value).decode() if value else None
    return None if value is None else str(value)


def _make_ending(outcome: Outcome) -> Block:
    rank = f"{sortable_time(outcome.ended_at)} {outcome.status} {outcome.cause}"
    return Block(rank, _block_fields(outcome, "outcome"))


class _Steps(NamedTuple):
    """What the parts of steps say together."""

    calls: dict[str, tuple[int, int]]
    """See TrajectorySummary."""
    agents: set[str | None]
    tools: set[str]
    engines: set[str | None]
    versions: set[int]
    """Policy versions that sampled tokens."""
    findings: set[str]


def _summarise_steps(parts: Iterable[StepOutline | StepPart]) -> _Steps:
    steps = _Steps({}, set(), set(), set(), set(), set())
    for part in parts:
        actions: Sequence[ActionOutline | Action] = part.actions or ()
        steps.agents.add(part.agent)
        steps.engines.add(part.engine)
        if part.findings:
            steps.findings.update([finding.partition(":")[0] for finding in part.findings])
        for action in actions:
            if not isinstance(action, ActionOutline) or action.may_request_tools:
                steps.tools.update(requested_tool_names(action))
            steps.versions.update(
                [min(max(one, -_MAX_VERSION), _MAX_VERSION) for one, _ in action.policy_versions or ()]
            )
        if not is_caller_note(part):
            bits, num_choices = steps.calls.get(part.call_id, (0, 1))
            if part.source == "gateway":
                bits |= STARTED if part.phase == "start" else ENDED
            steps.calls[part.call_id] = bits, max(num_choices, len(actions))
    return steps


def _written(at: float) -> str:
    return repr(known_time(at))
