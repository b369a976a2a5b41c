"""Trajectories: everything that one attempt recorded, assembled from its records.

``join_spans``: spans of others that describe a call which is known already. Frameworks and clients each make a span of
one call. A span is the same call as the call whose own span it is, as a call made directly inside it, and as the only
other model call span directly inside it.

``assemble_step``: parts become steps; each field comes from the highest authority that knows it.

``assemble_trajectory``: records become a trajectory; prompts are restored from their deltas.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.messages import as_json_object, as_json_objects, parse_json_text, resolve
from agent_layer.schema.record import JsonObject, Record, TokenIds, current_version
from agent_layer.schema.reward import Label, Reward, current_labels, label_rank, rollout_reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome, Resumed
from agent_layer.schema.step import Action, Content, ContentRef, Observation, Step, StepPart, StepState, is_caller_note
from agent_layer.schema.task import Task
from agent_layer.schema.training import ExcludedRollout, TrainedTokens


def join_spans(parts: Sequence[StepPart]) -> Sequence[StepPart]:
    """Return all parts; those of spans get the id of the call that they describe.

    The result depends on the set of parts only.
    """
    spans = [part for part in parts if part.source == "otel" and part.span_id]
    if not spans:
        return parts
    calls = _Calls(parts)
    by_span = {part.span_id: part.call_id for part in sorted(spans, key=_order)}
    num_inside = Counter(parent for parent, _ in {(part.parent_span_id, part.span_id) for part in spans})
    for part in sorted(parts, key=_order):
        if part.span_id in by_span:
            calls.merge(by_span[part.span_id], part.call_id)
        if part.parent_span_id in by_span and (part.source != "otel" or num_inside[part.parent_span_id] == 1):
            calls.merge(by_span[part.parent_span_id], part.call_id)
    return [msgspec.structs.replace(part, call_id=calls.canonical_id(part.call_id)) for part in parts]


def _order(part: StepPart) -> tuple[float, str, str]:
    return part.at, part.call_id, part.phase


class _Calls:
    """Groups of call ids that name one call; the best known id of each is canonical."""

    def __init__(self, parts: Iterable[StepPart]) -> None:
        self._leaders = {part.call_id: part.call_id for part in parts}
        self._ranks: dict[str, tuple[bool, float, str]] = {}
        for part in parts:
            rank = (part.source == "otel", part.at, part.call_id)  # False, known from elsewhere, comes first
            self._ranks[part.call_id] = min(rank, self._ranks.get(part.call_id, rank))

    def merge(self, one: str, other: str) -> None:
        """Record that two ids name the same call. Two ids known from other sources than spans never do."""
        best, rest = sorted((self.canonical_id(one), self.canonical_id(other)), key=self._ranks.__getitem__)
        if self._is_from_spans_only(rest):
            self._leaders[rest] = best

    def canonical_id(self, call_id: str) -> str:
        """Return the canonical id of a call."""
        while (leader := self._leaders[call_id]) != call_id:
            call_id = leader
        return call_id

    def _is_from_spans_only(self, call_id: str) -> bool:
        return self._ranks[call_id][0]


PartT = TypeVar("PartT", Action, StepState)

ABANDONED: Final = "abandoned"
"""Finding of a step after the checkpoint from which its attempt was resumed."""

_AUTHORITY = {"gateway": 0, "hook": 1, "handler": 2, "decorator": 3, "otel": 4, "import": 5}
_OWN = frozenset({"unknown", "source", "phase", "at", "state", "actions", "findings", "schema_version"})
_SHARED = tuple(name for name in StepPart.__struct_fields__ if name not in _OWN and name in Step.__struct_fields__)


def count_choices(parts: Iterable[StepPart]) -> int:
    """Return the number of choices of a call; 1 while its answer is unknown."""
    return max((len(part.actions) for part in parts if part.actions), default=1)


def assemble_step(parts: Sequence[StepPart], choice: int = 0) -> Step:
    """Assemble one step from all parts of its call.

    The result depends on the set of parts only: their order, and repeated ones, change nothing.

    Args:
        parts: [num_parts], at least one, all of the same call.
        choice: index of the choice.
    """
    ranked = sorted(parts, key=_rank)
    fields: dict[str, Any] = {name: _first(ranked, name) for name in _SHARED}
    fields["conversation"] = _first(sorted(ranked, key=_is_guess), "conversation")
    fields = {name: value for name, value in fields.items() if value is not None}
    ends = [part.at for part in ranked if part.phase == "end"]
    action = _merge(Action, [part.actions[choice] for part in ranked if part.actions and choice < len(part.actions)])
    fields |= {
        "choice": choice,
        "started_at": min(part.at for part in _of_best_source(ranked)),
        "ended_at": ends[0] if ends else None,
        "state": _merge(StepState, [part.state for part in ranked if part.state is not None]),
        "action": action,
        "sources": sorted({part.source for part in ranked}, key=_AUTHORITY.__getitem__),
        "findings": sorted({finding for part in ranked for finding in part.findings}),
        "unknown": {key: value for part in reversed(ranked) for key, value in part.unknown.items()},
    }
    return Step(**fields)


def assemble_steps(parts: Iterable[StepPart], abandoned: Collection[str] = ()) -> list[Step]:
    """Assemble all steps of one trajectory, in order of start, then call id, then choice.

    Args:
        parts: of all calls.
        abandoned: ids of calls that a resume abandoned; their steps are ``aborted``, whatever their status.
    """
    by_call: defaultdict[str, list[StepPart]] = defaultdict(list)
    for part in join_spans(list(parts)):
        by_call[part.call_id].append(part)
    steps = [
        assemble_step(call_parts, choice)
        for call_parts in by_call.values()
        if not all(map(is_caller_note, call_parts))
        for choice in range(count_choices(call_parts))
    ]
    steps.sort(key=lambda step: (step.started_at, step.call_id, step.choice))
    counted = [_abandon(step) if step.call_id in abandoned else step for step in steps]
    return [msgspec.structs.replace(step, index=index) for index, step in enumerate(counted)]


def _abandon(step: Step) -> Step:
    return msgspec.structs.replace(step, status="aborted", findings=sorted({*step.findings, ABANDONED}))


def _rank(part: StepPart) -> tuple[int, bool, float]:
    """Sort key: highest authority first; within a layer the end before the start, because it knows more."""
    return _AUTHORITY[part.source], part.phase == "start", part.at


def _is_guess(part: StepPart) -> bool:
    """Whether the conversation is inferred from prompts; a program may name its own, such as a thread."""
    return part.source == "gateway"


def _of_best_source(ranked: Sequence[StepPart]) -> list[StepPart]:
    return [part for part in ranked if part.source == ranked[0].source]


def _first(records: Iterable[object], name: str) -> object:
    return next((value for record in records if (value := getattr(record, name)) is not None), None)


def _merge(kind: type[PartT], records: Sequence[PartT]) -> PartT:
    """Merge records: first known value of each field. Empty defaults count as not known."""
    values: dict[str, Any] = {name: _first_known(records, name) for name in kind.__struct_fields__}
    return kind(**{name: value for name, value in values.items() if value is not None})


def _first_known(records: Iterable[object], name: str) -> object:
    return next((value for record in records if (value := getattr(record, name)) not in (None, {})), None)


TrajectoryRecord: TypeAlias = (
    AttemptStarted
    | StepPart
    | Content
    | ContentRef
    | Observation
    | Reward
    | Label
    | Outcome
    | Accepted
    | Resumed
    | TrainedTokens
    | ExcludedRollout
)
_OBSERVED: Final = "Observation:"
StepKey: TypeAlias = tuple[str, int]
"""Call and choice."""

R = TypeVar("R", bound=Record)


class Trajectory(Record, frozen=True, kw_only=True, tag="trajectory"):
    """One attempt as a graph: ``prompt.parent_call`` of each step points at the step whose tokens it continues."""

    trajectory_id: str
    schema_version: int = msgspec.field(default_factory=current_version)
    started: AttemptStarted | None = None
    """None when the opener died before it recorded the beginning."""
    steps: list[Step] = []
    observations: list[Observation] = []
    rewards: list[Reward] = []
    """All judgements, superseded ones included, in order of time."""
    given_labels: list[Label] = []
    """All labels given later, superseded and withdrawn ones included, in order of time."""
    outcome: Outcome | None = None
    accepted: Accepted | None = None
    resumes: list[Resumed] = []
    """Resumes by other holders, in order of time; steps that these abandoned are ``aborted``."""
    contents: dict[str, bytes] = {}
    """JSON text by content hash: contents stored beside the steps, and blobs that were fetched."""
    blobs: dict[str, str] = {}
    """Names of the blobs that hold the other contents, by content hash."""
    trained: list[TrainedTokens] = []
    """What updates computed for its tokens, in order of time; more than one where a killed trainer did a step again."""
    exclusions: list[ExcludedRollout] = []
    """Why updates did not learn from it, in order of time."""

    @property
    def task(self) -> Task | None:
        """The task, where its opener recorded it."""
        return self.started.task if self.started else None

    @property
    def reward(self) -> float | None:
        """Reward of the rollout; None: no judgement, which is not zero."""
        return rollout_reward(self.started.rewards if self.started else {}, self.rewards, self.outcome)

    @property
    def labels(self) -> dict[str, str]:
        """Labels by name: those of its task, superseded or withdrawn by those given later."""
        return current_labels(self.started.labels if self.started else {}, self.given_labels)


def assemble_trajectory(trajectory_id: str, records: Iterable[TrajectoryRecord]) -> Trajectory:
    """Assemble a trajectory. The result depends on the set of records only, not on order or repetition.

    Without an outcome, records may still arrive: steps whose prefix parent is missing are left out.

    Raises: CorruptRecordError: a prefix parent has another length than was recorded, or is missing though all ended.
    """
    found = list(records)
    parts = {(part.call_id, part.source, part.phase, part.at): part for part in _only(StepPart, found)}
    observations = {record.observation_id: record for record in _only(Observation, found)}
    rewards = {record.reward_id: record for record in _only(Reward, found)}
    labels = {(*label_rank(record), record.name): record for record in _only(Label, found)}
    resumes = {(record.at, record.worker or "", *record.abandoned): record for record in _only(Resumed, found)}
    trained = {record.batch_id: record for record in _only(TrainedTokens, found)}
    exclusions = {(one.at or 0.0, one.run or "", one.kind): one for one in _only(ExcludedRollout, found)}
    abandoned = {call_id for record in resumes.values() for call_id in record.abandoned}
    outcome = min(_only(Outcome, found), key=lambda record: record.ended_at, default=None)
    steps = restore_prompts(assemble_steps(parts.values(), abandoned), has_ended=outcome is not None)
    contents = {record.hash: record.body for record in _only(Content, found)}
    observed = [*observations.values(), *infer_observations(steps, contents, observations.values())]
    return Trajectory(
        trajectory_id=trajectory_id,
        started=min(_only(AttemptStarted, found), key=lambda one: (one.task is None, one.started_at), default=None),
        steps=steps,
        observations=sorted(observed, key=lambda record: (record.at, record.observation_id)),
        rewards=sorted(rewards.values(), key=lambda record: (record.at, record.reward_id)),
        given_labels=[labels[place] for place in sorted(labels)],
        outcome=outcome,
        accepted=min(_only(Accepted, found), key=lambda record: record.accepted_at, default=None),
        resumes=[resumes[place] for place in sorted(resumes)],
        contents=contents,
        blobs={record.hash: record.blob for record in sorted(_only(ContentRef, found), key=lambda one: one.blob)},
        trained=sorted(trained.values(), key=lambda record: (record.at, record.batch_id)),
        exclusions=[exclusions[place] for place in sorted(exclusions)],
    )


def infer_observations(
    steps: Sequence[Step], contents: Mapping[str, bytes], recorded: Iterable[Observation]
) -> Iterator[Observation]:
    """Yield the tool answers that no layer recorded, from the messages of the prompts that followed.

    The answers to a step stand behind its own prompt in the first prompt that goes on from there. A tool message names
    the call that it answers. Frameworks without tool messages, such as smolagents, put the answer into a text that
    begins with ``Observation:``; it counts where the step asked for one tool.

    Args:
        steps: of one attempt, in their order.
        contents: of their messages; a message that is not here, or is no JSON, is passed over.
        recorded: observations of all layers. Nothing is inferred at a step that has one, nor an answer that is one.
    """
    seen = list(recorded)
    seen_calls = {one.call_id for one in seen}
    seen_answers = {(one.name, str(one.output)) for one in seen}
    asking: list[_OpenStep] = []
    for step in steps:
        messages = step.state.messages or []
        if found := next((one for one in reversed(asking) if one.goes_on_in(messages)), None):
            asking.remove(found)
            for call_id, output in _tool_answers(found, messages, contents):
                function = found.functions[call_id]
                if (function["name"], str(output)) in seen_answers:
                    continue
                yield Observation(
                    trajectory_id=step.trajectory_id,
                    observation_id=f"{found.step.call_id}/{call_id}",
                    run=step.run,
                    name=str(function["name"]),
                    at=step.started_at,
                    call_id=found.step.call_id,
                    agent=found.step.agent,
                    arguments=parse_json_text(function.get("arguments")),
                    output=output,
                )
        calls = as_json_objects((step.action.message or {}).get("tool_calls"))
        named = [(call.get("id"), as_json_object(call.get("function"))) for call in calls]
        functions = {name: one for name, one in named if isinstance(name, str) and isinstance(one.get("name"), str)}
        if functions and step.call_id not in seen_calls:
            asking.append(_OpenStep(step, messages, functions))


class _OpenStep(NamedTuple):
    """A step that asked for tools, whose answers no prompt has shown yet."""

    step: Step
    messages: Sequence[str]
    functions: Mapping[str, JsonObject]
    """Functions by id of the tool call."""

    def goes_on_in(self, messages: Sequence[str]) -> bool:
        """Whether a prompt begins with this step's own, and says more."""
        num = len(self.messages)
        return len(messages) > num > 0 and messages[:num] == self.messages


def _tool_answers(
    asking: _OpenStep, messages: Sequence[str], contents: Mapping[str, bytes]
) -> Iterator[tuple[str, object]]:
    """Yield (id of a tool call, its answer), for the calls of one step."""
    left = dict(asking.functions)
    observed: str | None = None
    for name in messages[len(asking.messages) :]:
        body, message = contents.get(name, b""), JsonObject()
        if b'"tool"' in body or _OBSERVED.encode() in body:
            message = as_json_object(resolve(contents, name))
        content = message.get("content")
        texts = [part.get("text") for part in as_json_objects(content)]
        if texts and all(isinstance(text, str) for text in texts):
            content = "".join(map(str, texts))
        call_id = message.get("tool_call_id")
        if message.get("role") == "tool" and isinstance(call_id, str) and left.pop(call_id, None) is not None:
            yield call_id, content
        elif observed is None and isinstance(content, str) and content.startswith(_OBSERVED):
            observed = content.removeprefix(_OBSERVED).lstrip("\n")
    if observed is not None and len(left) == len(asking.functions) == 1:
        yield next(iter(left)), observed


def _only(kind: type[R], records: Iterable[object]) -> list[R]:
    return [record for record in records if isinstance(record, kind)]


def restore_prompts(steps: Sequence[Step], *, has_ended: bool = True) -> list[Step]:
    """Fill ``prompt_token_ids`` of each step by walking the deltas from its root.

    Args:
        steps: of one attempt.
        has_ended: all steps are stored; if False, steps whose prefix parent is missing are left out.

    Raises: CorruptRecordError: a prefix parent is missing, or has another length than was recorded.
    """
    following: defaultdict[StepKey | None, list[Step]] = defaultdict(list)
    for step in steps:
        following[_parent_key(step)].append(step)
    restored: dict[StepKey | None, Step] = {}
    reached = list(following[None])
    for step in reached:  # grows during the loop: the continuations of a step come after it
        restored[_step_key(step)] = _restore(step, restored.get(_parent_key(step)))
        if step.prompt is not None:
            reached += following[_step_key(step)]
    if has_ended:
        for step in steps:
            if _step_key(step) not in restored and step.prompt is not None:
                raise CorruptRecordError(
                    f"step {step.call_id} of trajectory {step.trajectory_id}: the step {step.prompt.parent_call}, whose"
                    " tokens it continues, is not stored; run 'agent-layer store check'"
                )
    kept = [restored[_step_key(step)] for step in steps if _step_key(step) in restored]
    return [msgspec.structs.replace(step, index=index) for index, step in enumerate(kept)]


def _restore(step: Step, parent: Step | None) -> Step:
    if step.prompt is None:
        return step
    prompt = TokenIds()
    if parent is not None:
        prompt.extend(parent.prompt_token_ids or ())
        prompt.extend(parent.action.response_token_ids or ())
    if len(prompt) != step.prompt.prefix_length:
        raise CorruptRecordError(
            f"step {step.call_id} of trajectory {step.trajectory_id}: its prefix should have"
            f" {step.prompt.prefix_length} tokens, but its parent gives {len(prompt)};"
            " run 'agent-layer store check'"
        )
    prompt.extend(step.prompt.delta)
    return msgspec.structs.replace(step, prompt_token_ids=prompt)


def _step_key(step: Step) -> StepKey:
    return step.call_id, step.choice


def _parent_key(step: Step) -> StepKey | None:
    if step.prompt is None or step.prompt.parent_call is None:
        return None
    return step.prompt.parent_call, step.prompt.parent_choice
