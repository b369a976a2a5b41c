"""The table of checks: what each asks, what it promises, and how it is judged.

A check is one row of ``CHECKS`` and, where its requests are unlike others', one coroutine. Nothing here knows a word
that only our gateway has.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from agent_layer.conformance.dialects import Answer
from agent_layer.conformance.engine import Plan, Rewrite
from agent_layer.conformance.judging import (
    Case,
    Claim,
    Judgement,
    NotClaimed,
    judge_client,
    judge_delivered,
    judge_nothing_whole,
    judge_odd,
    judge_records,
    judge_refusals,
)
from agent_layer.conformance.scripts import (
    ask_at_once,
    ask_choices,
    ask_in_a_row,
    ask_oddly,
    ask_once,
    ask_sampling,
    break_connection,
    call_in_two_turns,
    call_once,
    call_twice_at_once,
    converse,
    end_with,
    fail_first,
    halve_pairs,
    interleave,
    leave_and_retry,
    leave_and_retry_by_key,
    leave_once,
    leave_one_of_three,
    remove_choices,
    remove_usage,
    repeat_id,
    retry_after_failure,
    retry_by_key,
    retry_by_key_at_once,
    say_error,
    say_halves,
    say_much,
    say_nothing,
    say_number,
    say_odd_characters,
    use_tools,
)
from agent_layer.conformance.session import Session
from agent_layer.schema import JsonObject

Script: TypeAlias = Callable[[Session], Awaitable[None]]
Judge: TypeAlias = Callable[[Case], Iterator[Judgement]]
_ALL: Final = ("chat", "messages", "responses", "google")
_STYLES: Final = (False, True)


class Check(NamedTuple):
    """One row of the table."""

    name: str
    question: str
    """What is asked, as a sentence."""
    promise: str
    """What must be so, as a sentence."""
    script: Script
    plan: Plan
    judge: Judge
    rewrite: Rewrite | None = None
    dialects: tuple[str, ...] = _ALL
    styles: tuple[bool, ...] = _STYLES
    """Whether answers are streamed."""


def _judge_count(num_asked: int) -> Judge:
    return lambda case: judge_delivered(case, num_asked)


def _judge_tools(num_asked: int, num_results: int) -> Judge:
    def judge(case: Case) -> Iterator[Judgement]:
        yield from judge_delivered(case, num_asked)
        prompt = case.samples[-1].prompt if case.samples else []
        results = [one for one in prompt if one.get("role") == "tool"]
        texts = sorted(str(one.get("content")) for one in results)
        made = [f"result of {call.arguments}" for one in case.whole for call in one.calls]
        yield Claim("tool results at the engine", "; ".join(sorted(made)), "; ".join(texts))
        yield Claim("number of them", str(num_results), str(len(results)))

    return judge


def _judge_choices(case: Case) -> Iterator[Judgement]:
    """A request for several choices may be refused by itself."""
    if case.refused and not case.samples:
        yield NotClaimed("choices")
        yield from (one for one in judge_refusals(case) if not one.holds)
    else:
        yield from judge_delivered(case, 3)


def _judge_by_key(case: Case) -> Iterator[Judgement]:
    """Two samples are as good as one, if both are recorded; one sample must be one answer, recorded once."""
    if len(case.samples) == 1 and len(case.whole) == 2:
        first, second = case.whole
        yield Claim("text of the repeated answer", first.text, second.text)
        yield from judge_delivered(_with_answers(case, [first]))
    else:
        yield NotClaimed("Idempotency-Key")
        yield from judge_delivered(case, 2)


def _judge_after_failure(case: Case) -> Iterator[Judgement]:
    yield Claim("whole answers at the client", "1", str(len(case.whole)))
    yield from judge_refusals(case)
    yield from judge_delivered(case)


def _judge_left(case: Case) -> Iterator[Judgement]:
    reached = [one for one in case.samples if one.token_ids]
    yield Claim("calls that the engine began", "1", str(len(reached)))
    yield Claim("calls that it ran to the end, unread", "0", str(sum(one.is_finished for one in reached)))
    yield from judge_records(case)


def _judge_left_and_retried(num_asked: int) -> Judge:
    def judge(case: Case) -> Iterator[Judgement]:
        yield Claim("whole answers at the client", str(num_asked), str(len(case.whole)))
        yield from judge_client(case)
        yield from judge_records(case)

    return judge


def _judge_sampling(case: Case) -> Iterator[Judgement]:
    yield from judge_delivered(case, 1)
    request: JsonObject = case.samples[0].request if case.samples else {}
    yield Claim("temperature at the engine", "0.25", str(request.get("temperature")))
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    yield Claim("token limit at the engine", "77", str(limit))


def _judge_odd_request(case: Case) -> Iterator[Judgement]:
    for answer in case.refused:
        expected = f"{answer.status} in the dialect's shape"
        yield Claim("refusal", expected if 400 <= answer.status < 500 else "4xx", str(answer.fault))
    yield from judge_delivered(case)


def _with_answers(case: Case, answers: list[Answer]) -> Case:
    return Case(answers=answers, samples=case.samples, records=case.records, recorded=case.recorded)


_TELLS = "The client can tell: by an error in the dialect's shape, or by a stream that does not end well."
_HONEST = "What the client gets and what is recorded as whole agree; an error is in the dialect's shape."
_NOT_TRAINED = "What its client never got whole is not recorded as a whole answer."
_N_SAMPLES = "n equal questions are n samples: n answers arrive, n are recorded."
_EXACT = "Text, tool calls, end, usage, token ids, log-probabilities and prompt ids are the engine's."

CHECKS: Final[tuple[Check, ...]] = (
    Check("text", "One question is answered with a text.", _EXACT, ask_once, say_number, _judge_count(1)),
    Check(
        "conversation",
        "Three questions, each with the answers before it.",
        _EXACT,
        converse,
        say_number,
        _judge_count(3),
    ),
    Check(
        "unicode",
        "The answer has line separators, a NUL, a byte order mark, emoji and quotes.",
        _EXACT,
        ask_once,
        say_odd_characters,
        _judge_count(1),
    ),
    Check("empty", "The model ends its turn at once.", _EXACT, ask_once, say_nothing, _judge_count(1)),
    Check(
        "length",
        "The answer ends because of its token limit.",
        _EXACT,
        ask_once,
        end_with("length"),
        _judge_count(1),
    ),
    Check(
        "sampling",
        "A question with a temperature and a token limit.",
        "Both reach the engine.",
        ask_sampling,
        say_number,
        _judge_sampling,
    ),
    Check(
        "tool",
        "The model calls a tool, gets its result, and answers.",
        _EXACT,
        use_tools,
        call_once,
        _judge_tools(2, 1),
    ),
    Check(
        "parallel tools",
        "The model calls two tools in one answer; the results come in the other order.",
        _EXACT,
        use_tools,
        call_twice_at_once,
        _judge_tools(2, 2),
    ),
    Check(
        "choices",
        "One request for three choices.",
        _EXACT,
        ask_choices,
        say_number,
        _judge_choices,
        dialects=("chat",),
    ),
    Check(
        "equal at once", "Five equal questions at the same time.", _N_SAMPLES, ask_at_once, say_number, _judge_count(5)
    ),
    Check(
        "equal in a row",
        "Three equal questions, one after the other.",
        _N_SAMPLES,
        ask_in_a_row,
        say_number,
        _judge_count(3),
    ),
    Check(
        "interleaved agents",
        "Three agents with instructions of their own hold conversations at the same time, at one address.",
        _EXACT,
        interleave,
        say_number,
        _judge_count(9),
    ),
    Check(
        "retry by key",
        "A request is sent again with the same Idempotency-Key, after its answer arrived.",
        "One sample, delivered twice and recorded once; or two samples, both recorded.",
        retry_by_key,
        say_number,
        _judge_by_key,
    ),
    Check(
        "retry by key at once",
        "Two requests with the same Idempotency-Key at the same time.",
        "One sample, delivered twice and recorded once; or two samples, both recorded.",
        retry_by_key_at_once,
        say_number,
        _judge_by_key,
    ),
    *(
        Check(
            f"retry after {status}",
            f"The engine answers {status}; the client tries again, counting in its SDK's retry header.",
            "One answer arrives and is recorded; the failure is an error in the dialect's shape, or is not seen.",
            retry_after_failure,
            fail_first(status),
            _judge_after_failure,
        )
        for status in (429, 503)
    ),
    Check(
        "retry of a lost call",
        "A client goes away while its answer is sampled, and asks again, counting in its SDK's retry header.",
        "The answer that it reads is recorded once. " + _NOT_TRAINED,
        leave_and_retry,
        say_much,
        _judge_left_and_retried(1),
    ),
    Check(
        "lost call by key",
        "A client goes away while its answer is sampled, and asks again with the same Idempotency-Key.",
        "The answer that it reads is recorded once. " + _NOT_TRAINED,
        leave_and_retry_by_key,
        say_much,
        _judge_left_and_retried(1),
    ),
    Check(
        "cancel",
        "A client goes away while its answer is sampled.",
        "The engine's call ends with its client. " + _NOT_TRAINED,
        leave_once,
        say_much,
        _judge_left,
    ),
    Check(
        "cancel beside others",
        "Three equal questions at the same time; one client goes away.",
        "The others' answers arrive and are recorded. " + _NOT_TRAINED,
        leave_one_of_three,
        say_much,
        _judge_left_and_retried(2),
    ),
    Check(
        "broken connection",
        "The engine's connection breaks in the middle of its answer.",
        _TELLS + " " + _NOT_TRAINED,
        ask_once,
        say_number,
        judge_nothing_whole,
        break_connection,
    ),
    Check(
        "error in a stream",
        "The engine's stream ends with an error event.",
        _TELLS + " " + _NOT_TRAINED,
        ask_once,
        say_error,
        judge_nothing_whole,
        styles=(True,),
    ),
    Check(
        "usage null",
        "The engine counts no tokens: usage is null.",
        _EXACT,
        ask_once,
        say_number,
        _judge_count(1),
        remove_usage,
    ),
    Check(
        "no choices",
        "The engine's whole answer has choices: null.",
        _TELLS + " " + _NOT_TRAINED,
        ask_once,
        say_number,
        judge_nothing_whole,
        remove_choices,
        styles=(False,),
    ),
    Check(
        "event without choices",
        "Events of the engine's stream have choices: null.",
        _HONEST,
        ask_once,
        say_number,
        judge_odd,
        remove_choices,
        styles=(True,),
    ),
    Check(
        "unknown end",
        "The engine's finish reason is a word that no reference has.",
        _HONEST + " A recorded end is the engine's word.",
        ask_once,
        end_with("planned_end"),
        judge_odd,
    ),
    Check(
        "lone surrogate",
        "The answer has half a surrogate pair.",
        _HONEST,
        ask_once,
        say_halves,
        judge_odd,
        halve_pairs,
    ),
    Check(
        "repeated ids",
        "All answers of the engine have one id, and two tool calls of two turns have one call id.",
        _EXACT,
        use_tools,
        call_in_two_turns,
        _judge_tools(3, 2),
        repeat_id,
    ),
    Check(
        "odd request",
        "A request has members that are null, and one that no reference has.",
        _HONEST,
        ask_oddly,
        say_number,
        _judge_odd_request,
    ),
)
