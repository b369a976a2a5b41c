"""An agent that sends back what it was given goes on from the model's own tokens, whatever its ids and spelling are."""

import json
from itertools import count

from hypothesis import given, settings, strategies as st

from .talking import Talk, render

ARGUMENTS = [
    "{}",
    '{"a":1}',
    '{"a": 1}',
    '{"a": 1.0}',
    '{"b":2,\n "a": 1e0}',
    '{"x": "\\ud83d"}',
    '{"x": "\\u00e4"}',
    "{",
    "[1]",
    "",
]
IDS = ["repeated", "equal", "unique", "none"]
AGENT_IDS = ["kept", "minted", "numbered", "dropped"]


@st.composite
def answers(draw):
    """What a model says, without ids: text, thought and calls."""
    calls = draw(st.lists(st.tuples(st.sampled_from("fg"), st.sampled_from(ARGUMENTS)), max_size=3))
    text = draw(st.sampled_from(["", "look", "done"]))
    thought = draw(st.sampled_from([None, "hm", "so", "hm"]))
    return text, thought, calls


def say(answer, ids, numbers):
    text, thought, calls = answer
    made = [
        {
            "id": {"repeated": f"call_{at}", "equal": "call", "unique": f"u{next(numbers)}", "none": ""}[ids],
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for at, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text if text or not made else None}
    return message | ({"reasoning": thought} if thought else {}) | ({"tool_calls": made} if made else {})


class Agent:
    """One conversation: keeps what it is given, and sends it back in the way of its kind."""

    def __init__(self, talk, dialect, name, ids, *, parses, drops_reasoning):
        self.talk, self.dialect, self.name, self.ids = talk, dialect, name, ids
        self.parses, self.drops_reasoning = parses, drops_reasoning
        self.history, self.before, self.numbers = [], None, count()
        self.say_user("start")

    def say_user(self, text):
        self.history.append({"role": "user", "content": text})

    def turn(self, message):
        fields = {
            "tools": [{"type": "function", "name": self.name, "function": {"name": self.name}, "input_schema": {}}]
        }
        match self.dialect:
            case "chat":
                read, reply, findings = self.talk.ask("chat", {**fields, "messages": self.history}, message)
                self.take_chat(reply["choices"][0]["message"])
            case "messages":
                body = {**fields, "messages": self.history, "max_tokens": 9}
                read, reply, findings = self.talk.ask("messages", body, message)
                self.take_blocks(reply["content"])
            case _:
                linked = {"previous_response_id": self.before} if self.dialect == "linked" else {}
                body = {**fields, "input": self.history, **linked}
                read, reply, findings = self.talk.ask(self.dialect, body, message)
                self.before = reply["id"]
                self.take_items(reply["output"])
        return read, findings

    def new_ids(self, given):
        kinds = {"kept": given, "minted": [f"m{next(self.numbers)}" for _ in given]}
        return kinds | {"numbered": [f"n{at}" for at, _ in enumerate(given)], "dropped": [None for _ in given]}

    def take_chat(self, message):
        calls = message.get("tool_calls", [])
        ids = self.new_ids([one["id"] for one in calls])[self.ids]
        again = [
            {"type": "function", "function": {**one["function"], "arguments": self.spell(one["function"]["arguments"])}}
            | ({"id": new} if new is not None else {})
            for one, new in zip(calls, ids, strict=True)
        ]
        left = ("tool_calls", "reasoning") if self.drops_reasoning else ("tool_calls",)
        own = {name: value for name, value in message.items() if name not in left}
        self.history.append({**own, **({"tool_calls": again} if again else {})})
        self.history += [{"role": "tool", "tool_call_id": new or "", "content": f"r{at}"} for at, new in enumerate(ids)]
        if not calls:
            self.say_user("go on")

    def spell(self, arguments):
        if not self.parses:
            return arguments
        try:
            return json.dumps(json.loads(arguments), sort_keys=True)
        except ValueError:
            return arguments

    def take_blocks(self, blocks):
        calls = [one for one in blocks if one["type"] == "tool_use"]
        ids = iter(self.new_ids([one["id"] for one in calls])["kept" if self.ids == "dropped" else self.ids])
        kept = [one for one in blocks if not (self.drops_reasoning and one["type"] == "thinking")]
        again = [{**one, "id": next(ids)} if one["type"] == "tool_use" else one for one in kept]
        self.history.append({"role": "assistant", "content": again})
        used = [one["id"] for one in again if one["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": one, "content": f"r{at}"} for at, one in enumerate(used)]
        self.history.append({"role": "user", "content": results or "go on"})

    def take_items(self, items):
        calls = [one for one in items if one["type"] == "function_call"]
        kind = "kept" if self.dialect == "linked" or self.ids == "dropped" else self.ids
        ids = self.new_ids([one["call_id"] for one in calls])[kind]
        spelled = iter(zip(ids, calls, strict=True))
        again = []
        for item in items:
            if item["type"] == "function_call":
                new, call = next(spelled)
                again.append({**call, "call_id": new, "arguments": self.spell(call["arguments"])})
            elif not (self.drops_reasoning and item["type"] == "reasoning"):
                again.append(item)
        self.history = [] if self.dialect == "linked" else [*self.history, *again]
        outputs = [{"type": "function_call_output", "call_id": one, "output": f"r{at}"} for at, one in enumerate(ids)]
        self.history += outputs or [{"role": "user", "content": "go on"}]


@settings(deadline=None)
@given(st.data())
def test_an_agent_that_sends_back_what_it_was_given_continues_the_models_tokens(data):
    draw = data.draw
    drops = draw(st.booleans())
    talk, numbers = Talk(with_reasoning=drops), count()
    agents = [
        Agent(
            talk,
            draw(st.sampled_from(["chat", "responses", "linked", "messages"])),
            draw(st.sampled_from(["a", "a", "b"])),
            draw(st.sampled_from(AGENT_IDS)),
            parses=draw(st.booleans()),
            drops_reasoning=drops,
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    ids = draw(st.sampled_from(IDS))
    spoken = {}

    for _ in range(draw(st.integers(2, 12))):
        agent = draw(st.sampled_from(agents))
        message = say(draw(answers()), ids, numbers)
        read, findings = agent.turn(message)

        assert not [one for one in findings if one.startswith("prefix_break")]
        history = [render(one) for one in read]
        for index, one in enumerate(read):
            if one["role"] == "assistant":
                assert history[index] in spoken[tuple(history[:index])]
        spoken.setdefault(tuple(history), []).append(render(message))
