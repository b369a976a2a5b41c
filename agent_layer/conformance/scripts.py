"""What checks do: plans of the engine's answers, oddities of them, and scripts of requests."""

import asyncio
import json

from agent_layer.conformance.dialects import TOOL_NAME, Question
from agent_layer.conformance.engine import HeldWords, Plan, Turn, refuse
from agent_layer.conformance.session import RETRY_HEADER, Session
from agent_layer.schema import JsonObject, as_json_object


def say_number(turn: Turn) -> JsonObject:
    """Answer with a text that no other answer has."""
    return {"content": f"this is sample {turn.number}"}


def say_much(turn: Turn) -> JsonObject:
    """Answer with a text that goes on while the check holds it."""
    return {"content": HeldWords(f"this is sample {turn.number}", turn.is_held)}


def call_once(turn: Turn) -> JsonObject:
    """Call a tool, then answer."""
    return say_number(turn) if turn.turn else _calling(turn, 1)


def call_twice_at_once(turn: Turn) -> JsonObject:
    """Call two tools in one answer, then answer."""
    return say_number(turn) if turn.turn else _calling(turn, 2)


def call_in_two_turns(turn: Turn) -> JsonObject:
    """Call a tool in two turns under the same call id, then answer."""
    return say_number(turn) if turn.turn > 1 else _calling(turn, 1, prefix="same")


def _calling(turn: Turn, num_calls: int, prefix: str = "") -> JsonObject:
    """Call a tool with arguments that are JSON, but not as a serialiser writes it."""
    calls = [
        {
            "id": f"call_{prefix or turn.number}_{one}",
            "type": "function",
            "function": {"name": TOOL_NAME, "arguments": f'{{ "word":"w{turn.number}-{one}" }}'},
        }
        for one in range(num_calls)
    ]
    return {"content": f"sample {turn.number} calls", "tool_calls": calls}


def fail_first(status: int) -> Plan:
    """Refuse a check's first request with a status, and answer the others."""
    return lambda turn: refuse(status) if turn.attempt == 0 else say_number(turn)


def say_odd_characters(turn: Turn) -> JsonObject:
    """Answer with characters that writers of JSON, lines and event streams get wrong."""
    words = [
        f"sample {turn.number}",
        'a\u2028b\u0085"c\\',
        "\ufeff\u0000\u0007",
        "\U0001f469\u200d\U0001f467 \u00e9",
        "data: x",
    ]
    return {"content": words}


def say_nothing(_: Turn) -> JsonObject:
    """End the turn at once."""
    return {"content": ""}


def end_with(reason: str) -> Plan:
    """Answer with a finish reason."""
    return lambda turn: {**say_number(turn), "finish_reason": reason}


def say_error(turn: Turn) -> JsonObject:
    """Answer with a text, and an error event at its end."""
    return {**say_number(turn), "error": {"message": "planned by the check", "code": 500}}


def say_halves(turn: Turn) -> JsonObject:
    """Answer with a text that ``halve_pairs`` makes odd."""
    return {"content": f"sample {turn.number} has ? of it"}


async def ask_once(session: Session) -> None:
    """Ask one question."""
    await session.ask(Question(turns=session.user("hello")))


async def converse(session: Session) -> None:
    """Ask three questions in one conversation."""
    await _go_on(session, "you are brief", 3)


async def _go_on(session: Session, system: str, num_turns: int) -> None:
    turns: list[JsonObject] = []
    for number in range(num_turns):
        turns += session.user(f"{system}, question {number}")
        (answer, *_) = await session.ask(Question(turns=list(turns), system=system))
        turns += answer.turns


async def interleave(session: Session) -> None:
    """Hold three conversations at the same time, each with instructions of its own."""
    await asyncio.gather(*(_go_on(session, f"you are agent {name}", 3) for name in ("one", "two", "three")))


async def use_tools(session: Session) -> None:
    """Return each call's result, the last call first, until the model calls no more."""
    turns = session.user("look it up")
    for _ in range(3):
        (answer, *_others) = await session.ask(Question(turns=list(turns), has_tools=True))
        if answer.fault or not answer.calls:
            return
        results = [(call.call_id, f"result of {call.arguments}") for call in answer.calls]
        turns = [*turns, *answer.turns, *session.dialect.results(reversed(results))]


async def ask_at_once(session: Session) -> None:
    """Ask five equal questions at the same time."""
    question = Question(turns=session.user("hello"))
    await asyncio.gather(*(session.ask(question) for _ in range(5)))


async def ask_in_a_row(session: Session) -> None:
    """Ask three equal questions, one after the other."""
    for _ in range(3):
        await session.ask(Question(turns=session.user("hello")))


async def ask_choices(session: Session) -> None:
    """Ask for three choices."""
    await session.ask(Question(turns=session.user("hello"), num_choices=3))


async def retry_by_key(session: Session) -> None:
    """Ask twice under one Idempotency-Key, one after the other."""
    for _ in range(2):
        await session.ask(Question(turns=session.user("hello")), {"Idempotency-Key": f"key-of-{session.mark}"})


async def retry_by_key_at_once(session: Session) -> None:
    """Ask twice under one Idempotency-Key, at the same time."""
    question, headers = Question(turns=session.user("hello")), {"Idempotency-Key": f"key-of-{session.mark}"}
    await asyncio.gather(session.ask(question, headers), session.ask(question, headers))


async def leave_and_retry_by_key(session: Session) -> None:
    """Ask, go away, and ask again under the same Idempotency-Key."""
    question, headers = Question(turns=session.user("hello")), {"Idempotency-Key": f"key-of-{session.mark}"}
    await session.leave(question, headers)
    await asyncio.gather(session.ask(question, headers), session.end_left())


async def retry_after_failure(session: Session) -> None:
    """Ask until a whole answer comes, three times at most, and count as SDKs do."""
    for number in range(3):
        (answer, *_) = await session.ask(Question(turns=session.user("hello")), {RETRY_HEADER: str(number)})
        if answer.fault is None:
            return


async def leave_once(session: Session) -> None:
    """Ask, and go away."""
    await session.leave(Question(turns=session.user("hello")))
    await session.end_left()


async def leave_and_retry(session: Session) -> None:
    """Ask, go away, and ask again, counting as SDKs do."""
    question = Question(turns=session.user("hello"))
    await session.leave(question, {RETRY_HEADER: "0"})
    await asyncio.gather(session.ask(question, {RETRY_HEADER: "1"}), session.end_left())


async def leave_one_of_three(session: Session) -> None:
    """Ask three equal questions at the same time, and go away from one."""

    async def leave() -> None:
        await session.leave(question)
        await session.end_left(3)

    question = Question(turns=session.user("hello"))
    session.engine.hold(session.mark)
    await asyncio.gather(session.ask(question), session.ask(question), leave())


async def ask_sampling(session: Session) -> None:
    """Ask with a temperature and a token limit."""
    await session.ask(Question(turns=session.user("hello"), max_tokens=77, more={"temperature": 0.25}))


async def ask_oddly(session: Session) -> None:
    """Ask with members that are null, and one that no reference has."""
    more: JsonObject = {"tools": None, "stop": None, "metadata": None, "x_unknown": {"deep": [None, 1.5, "\u2028"]}}
    await session.ask(Question(turns=session.user("hello"), more=more))


def break_connection(sent: JsonObject, place: int) -> JsonObject:
    """Let the connection break: before a whole answer, or behind some words of a stream."""
    if "message" in str(sent.get("choices")) or place >= 3:
        raise ConnectionResetError("planned by the check")
    return sent


def remove_usage(sent: JsonObject, _: int) -> JsonObject:
    """Put null in place of usage."""
    return {**sent, "usage": None}


def remove_choices(sent: JsonObject, place: int) -> JsonObject:
    """Null in place of all choices of a whole answer; in a stream, of the first event and of those without choices."""
    return {**sent, "choices": None} if place == 0 or not sent.get("choices") else sent


def halve_pairs(sent: JsonObject, _: int) -> JsonObject:
    """Put half a surrogate pair in place of each question mark."""
    return as_json_object(json.loads(json.dumps(sent).replace("?", "\\ud83d")))


def repeat_id(sent: JsonObject, _: int) -> JsonObject:
    """Put the same id into all answers."""
    return {**sent, "id": "chatcmpl-same"}
