"""Messages of one trajectory: a prompt of 2 KB, then a tool's answer every turn."""

from collections.abc import Iterator
from random import Random

import msgspec
from store_facts import Facts
from store_text import Text, write_text

from agent_layer.schema.record import JsonObject

__all__ = ["TOOLS", "Turn", "make_turns", "task_text"]

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"input": {}}}}}
    for name in ("python", "search", "calculator")
]
_PROMPT_WORDS, _TASK_WORDS, _ANSWER_WORDS, _SEEN_WORDS = 330, 70, 115, 90


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model."""

    messages: list[JsonObject]
    """The whole history."""
    num_new: int
    """How many of them the turn before did not have."""
    new_ids: list[int]
    """Of the prompt, behind what the turn before had and said."""
    ids_before: list[int]
    """What the turn before had and said."""
    answer: JsonObject
    message: Text
    tool: str
    seen: Text
    """What the tool answered."""


def task_text(facts: Facts) -> Text:
    """What the task asks."""
    return write_text(Random(facts.task_id), _TASK_WORDS)


def make_turns(facts: Facts) -> Iterator[Turn]:
    """Yield the calls of a trajectory, in order."""
    random = Random(facts.number)
    system, request = write_text(Random(facts.task_type), _PROMPT_WORDS), task_text(facts)
    new: list[JsonObject] = [{"role": "system", "content": system.words}, {"role": "user", "content": request.words}]
    messages, new_ids, ids_before = list[JsonObject](), system.ids + request.ids, list[int]()
    for step in range(facts.num_steps):
        message, seen, tool = (
            write_text(random, _ANSWER_WORDS),
            write_text(random, _SEEN_WORDS),
            random.choice(facts.tools),
        )
        function = {"name": tool, "arguments": f'{{"input": "{message.words[:60]}"}}'}
        call = {"id": f"call_{facts.number}_{step}", "type": "function", "function": function}
        answer: JsonObject = {"role": "assistant", "content": message.words, "tool_calls": [call]}
        messages = messages + new
        yield Turn(
            messages=messages,
            num_new=len(new),
            new_ids=new_ids,
            ids_before=ids_before,
            answer=answer,
            message=message,
            tool=tool,
            seen=seen,
        )
        ids_before = ids_before + new_ids + message.ids
        new, new_ids = [answer, {"role": "tool", "tool_call_id": call["id"], "content": seen.words}], seen.ids
