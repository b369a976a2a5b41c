"""What was recorded, and what a client saw, against what the engine sampled: claims that hold or do not.

The engine's book decides. A claim is a pair of texts, expected and found; it holds when both are equal. What an
endpoint does not offer is no failure: it is listed by name as not claimed.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from agent_layer.conformance.adapters import RecordedAnswer
from agent_layer.conformance.dialects import Answer
from agent_layer.conformance.engine import Sample
from agent_layer.schema import JsonObject, as_json_object, as_json_objects

Member: TypeAlias = str
"""Something that an endpoint may record: ``record`` (any at all), ``token ids``, ``prompt ids``, ``logprobs``, ``end``
(the finish reason)."""

_HALVES: Final = re.compile("[\ud800-\udfff\ufffd?]+")
"""Half of a surrogate pair, and what a writer may put in its place."""


class Claim(NamedTuple):
    """Something that must be so."""

    subject: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        """Whether it is so."""
        return self.expected == self.found


class NotClaimed(NamedTuple):
    """Something that the endpoint does not offer."""

    what: str


Judgement: TypeAlias = Claim | NotClaimed


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one check after it has run."""

    answers: list[Answer]
    samples: list[Sample]
    records: list[RecordedAnswer]
    recorded: frozenset[Member]
    """Members that the endpoint records at all, in any check."""

    @property
    def whole(self) -> list[Answer]:
        """Whole answers that a client received."""
        return [one for one in self.answers if one.fault is None]

    @property
    def refused(self) -> list[Answer]:
        """Errors and broken answers that a client received."""
        return [one for one in self.answers if one.fault is not None]


def find_members(records: Iterable[RecordedAnswer] | None) -> frozenset[Member]:
    """Return what an endpoint records: members that at least one record has."""
    if records is None:
        return frozenset()
    found = {"record"}
    for one in records:
        members = (
            ("token ids", one.response_token_ids),
            ("prompt ids", one.prompt_token_ids),
            ("logprobs", one.logprobs),
            ("end", one.finish_reason),
        )
        found |= {name for name, value in members if value is not None}
    return frozenset(found)


def judge_delivered(case: Case, num_asked: int | None = None) -> Iterator[Judgement]:
    """Judge a check whose every answer must arrive and be recorded, once each.

    Args:
        case: the check.
        num_asked: questions; each needs a sample of its own; None: as many as answers arrived.
    """
    if num_asked is not None:
        yield Claim("answers that arrived whole", str(num_asked), _count_whole(case))
        yield Claim("samples of the engine", str(num_asked), str(len(case.samples)))
    yield from judge_client(case)
    yield from judge_records(case)


def judge_odd(case: Case) -> Iterator[Judgement]:
    """Judge an odd answer of the engine: it may be refused or understood, but client and record agree."""
    yield from judge_refusals(case)
    yield from judge_client(case, plain=_same_but_halves)
    yield from judge_records(case, plain=_same_but_halves, may_doubt=True)


def judge_refusals(case: Case) -> Iterator[Claim]:
    """Judge errors: each has the shape that the dialect's clients read."""
    for answer in case.refused:
        if answer.status not in (0, 200):
            yield Claim("refusal", f"{answer.status} in the dialect's shape", str(answer.fault))


def judge_client(case: Case, *, plain: Callable[[str], str] = str) -> Iterator[Judgement]:
    """Judge whole answers: each is what the engine sampled for one request, and none arrives twice."""
    left = list(case.samples)
    for answer in sorted(case.whole, key=lambda one: one.text):
        text = plain(answer.text)
        sample = next((one for one in left if plain(one.text) == text and len(one.calls) == len(answer.calls)), None)
        if sample is None:
            near = [f"{one.text!r:.60} and {len(one.calls)} calls" for one in case.samples]
            yield Claim("answer at the client", " or ".join(near), f"{answer.text!r:.60} and {len(answer.calls)} calls")
            continue
        left.remove(sample)
        yield Claim("tool calls at the client", _canonical(sample.calls), _canonical_calls(answer))
        if answer.usage is not None:
            counts = len(sample.prompt_token_ids), sample.num_sampled
            yield Claim("usage at the client", str(counts), str(answer.usage))
        if sample.end in ("stop", "length", "tool_calls"):
            yield Claim("finish reason at the client", sample.end, str(answer.end))


def judge_records(case: Case, *, plain: Callable[[str], str] = str, may_doubt: bool = False) -> Iterator[Judgement]:
    """Judge what was recorded as whole: exactly the answers that a client received, to the token.

    Args:
        case: the check.
        plain: maps texts to what must agree of them.
        may_doubt: an answer may also be recorded with another status, because the engine's answer was odd.
    """
    if "record" not in case.recorded:
        yield NotClaimed("record")
        return
    recorded = list(case.records) if may_doubt and case.whole else [one for one in case.records if one.status == "ok"]
    yield Claim("whole answers in the record", str(len(case.whole)), str(len(recorded)))
    if len(recorded) != len(case.whole):
        return
    for answer in case.whole:
        text = plain(answer.text)
        sample = next((one for one in case.samples if plain(one.text) == text), None)
        found = next((one for one in recorded if sample and _matches(one, sample, plain)), None)
        if sample is None:
            continue  # the client's side has failed already
        if found is None:
            yield Claim("text in the record", repr(text)[:80], " or ".join(repr(_text(one))[:60] for one in recorded))
            continue
        recorded.remove(found)
        yield from _compare(sample, found, case.recorded)
    yield from (
        NotClaimed(name) for name in ("token ids", "prompt ids", "logprobs", "end") if name not in case.recorded
    )


def judge_nothing_whole(case: Case) -> Iterator[Judgement]:
    """Judge a check in which the engine gives no whole answer: client and record agree that there is none."""
    yield Claim("whole answers at the client", "0", str(len(case.whole)))
    yield from judge_refusals(case)
    yield from judge_records(case)


def _same_but_halves(text: str) -> str:
    """Return a text in which half surrogate pairs, and what stands for them, are equal."""
    return _HALVES.sub("?", text)


def _matches(record: RecordedAnswer, sample: Sample, plain: Callable[[str], str]) -> bool:
    if record.message is None:
        return record.response_token_ids == sample.token_ids
    return plain(_text(record)) == plain(sample.text) and _calls(record) == _canonical(sample.calls)


def _compare(sample: Sample, record: RecordedAnswer, recorded: frozenset[Member]) -> Iterator[Claim]:
    if "token ids" in recorded:
        yield Claim("token ids in the record", _short(sample.token_ids), _short(record.response_token_ids))
    if "prompt ids" in recorded:
        yield Claim("prompt ids in the record", _short(sample.prompt_token_ids), _short(record.prompt_token_ids))
    if "logprobs" in recorded:
        rounded = None if record.logprobs is None else [round(one, 4) for one in record.logprobs]
        yield Claim(
            "log-probabilities in the record", _short([round(one, 4) for one in sample.logprobs]), _short(rounded)
        )
    if "end" in recorded and record.finish_reason is not None:
        yield Claim("finish reason in the record", sample.end, record.finish_reason)


def _count_whole(case: Case) -> str:
    faults = "; ".join(str(one.fault) for one in case.refused)
    return f"{len(case.whole)}, and: {faults}" if faults else str(len(case.whole))


def _text(record: RecordedAnswer) -> str:
    content = as_json_object(record.message).get("content")
    parts = as_json_objects(content)
    return "".join(str(one.get("text") or "") for one in parts) if parts else str(content or "")


def _calls(record: RecordedAnswer) -> str:
    made = as_json_objects(as_json_object(record.message).get("tool_calls"))
    functions: list[JsonObject] = [as_json_object(one.get("function")) for one in made]
    return _canonical([(str(one.get("name")), str(one.get("arguments"))) for one in functions])


def _canonical_calls(answer: Answer) -> str:
    return _canonical([(one.name, one.arguments) for one in answer.calls])


def _canonical(calls: Sequence[tuple[str, str]]) -> str:
    """Return calls as text in which spaces and the order of members do not matter."""
    return "; ".join(f"{name}({_canonical_json(text)})" for name, text in calls)


def _canonical_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _short(values: Sequence[object] | None) -> str:
    """Return values as text that is equal only for equal values, and of readable length where that is possible."""
    if values is None:
        return "none"
    return f"{len(values)}: {' '.join(map(str, values))}"
