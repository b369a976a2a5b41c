"""An agent that sends back what it was given goes on from the model's own tokens, whatever its ids and spelling are."""

import json
from itertools import count

import pytest
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

    def __init__(self, talk, dialect, name, ids, *, parses, drops_reasoning, keeps_seal):
        self.talk, self.dialect, self.name, self.ids = talk, dialect, name, ids
        self.parses, self.drops_reasoning, self.keeps_seal = parses, drops_reasoning, keeps_seal
        self.history, self.before, self.numbers = [], None, count()
        self.say_user("start")

    @property
    def seals(self):
        return self.keeps_seal and self.dialect == "responses"

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
                body |= {"thinking": {"type": "adaptive", "display": "omitted"}} if self.keeps_seal else {}
                read, reply, findings = self.talk.ask("messages", body, message)
                self.take_blocks(reply["content"])
            case _:
                linked = {"previous_response_id": self.before} if self.dialect == "linked" else {}
                body = {**fields, "input": self.history, **linked}
                body |= {"include": ["reasoning.encrypted_content"], "store": False} if self.seals else {}
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
            elif item["type"] != "reasoning":
                again.append(item)
            elif self.seals:
                again.append({"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]})
            elif not self.drops_reasoning:
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
            keeps_seal=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    ids = draw(st.sampled_from(IDS))
    spoken = {}

    for _ in range(draw(st.integers(2, 12))):
        agent = draw(st.sampled_from(agents))
        text, thought, calls = draw(answers())
        if drops and not calls:
            text = text or "done"  # of a thought alone, an agent that drops it sends nothing back
        message = say((text, thought, calls), ids, numbers)
        read, findings = agent.turn(message)

        assert not [one for one in findings if one.startswith("prefix_break")]
        history = [render(one) for one in read]
        for index, one in enumerate(read):
            if one["role"] == "assistant":
                assert history[index] in spoken[tuple(history[:index])]
        spoken.setdefault(tuple(history), []).append(render(message))


def calling(arguments, call_id="call_0", reasoning="hm"):
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "reasoning": reasoning, "tool_calls": [call]}


@settings(deadline=None)
@given(
    st.sampled_from(["chat", "messages", "responses"]),
    st.lists(st.sampled_from(ARGUMENTS), min_size=3, max_size=8),
    st.lists(st.sampled_from(ARGUMENTS), min_size=2, max_size=4),
    st.sampled_from(["kept", "numbered"]),
    st.data(),
)
def test_a_history_that_was_cut_once_is_continued_from_then_on(dialect, before, after, ids, data):
    agent = Agent(Talk(), dialect, "a", ids, parses=False, drops_reasoning=False, keeps_seal=False)
    sizes = []
    for arguments in before:
        sizes.append(len(agent.history))
        agent.turn(calling(arguments))
    cut = data.draw(st.sampled_from(sizes[1:]))
    agent.history = [{"role": "user", "content": "summary"}, *agent.history[cut:]]

    found = [agent.turn(calling(arguments))[1] for arguments in after]

    assert not [one for findings in found[1:] for one in findings if one.startswith("prefix_break")]


def test_an_answer_that_a_resume_left_behind_is_not_taken_for_the_one_that_came_after():
    talk, body = Talk(), {"messages": [QUESTION], "max_tokens": 9}
    talk.ask("messages", body, calling('{"a":1}'))
    talk.rollout.history.answers.abandon(["call-0"])
    _, reply, _ = talk.ask("messages", body, calling('{"a": 1}'))

    history = [QUESTION, {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "go on"}]
    read, _, findings = talk.ask("messages", {"messages": history, "max_tokens": 9}, calling("{}"))

    assert read[1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert findings == []


def test_an_agents_own_examples_stay_as_they_are():
    talk = Talk()
    example = calling('{"a": 1}', "mine", None)
    shown = [QUESTION, example, {"role": "tool", "tool_call_id": "mine", "content": "2"}, QUESTION]
    talk.ask("chat", {"messages": shown}, calling('{"a":1}', "theirs", None))

    more = [calling('{"a":1}', "theirs", None), {"role": "tool", "tool_call_id": "theirs", "content": "2"}]
    read, _, findings = talk.ask("chat", {"messages": [*shown, *more]}, calling("{}"))

    assert read[1]["tool_calls"] == example["tool_calls"]
    assert findings == []


def test_an_example_that_says_what_the_model_said_elsewhere_gets_no_reasoning():
    talk = Talk(with_reasoning=True)
    talk.ask("chat", {"messages": [QUESTION]}, THOUGHT)

    example = {"role": "assistant", "content": THOUGHT["content"]}
    other = [{"role": "user", "content": "as in this example"}, example, QUESTION]
    read, _, _ = talk.ask("chat", {"messages": other}, THOUGHT)

    assert read == other


QUESTION = {"role": "user", "content": "start"}
THOUGHT = {"role": "assistant", "content": "look", "reasoning": "hm"}
SEALS = [
    (
        {"content": [{"type": "redacted_thinking", "data": "other"}, {"type": "text", "text": "look"}]},
        "redacted_thinking",
    ),
    (
        {"content": [{"type": "thinking", "thinking": "", "signature": "x"}, {"type": "text", "text": "look"}]},
        "thinking.signature",
    ),
]


@pytest.mark.parametrize(
    ("with_reasoning", "findings"), [(False, ["prefix_break:dropped_reasoning"]), (True, ["reasoning"])]
)
@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_reasoning_that_an_agent_drops_has_a_cause_or_is_put_back(dialect, with_reasoning, findings):
    talk = Talk(with_reasoning=with_reasoning)
    name = "input" if dialect == "responses" else "messages"
    talk.ask(dialect, {name: [QUESTION]}, THOUGHT)

    history = [QUESTION, {"role": "assistant", "content": "look"}, {"role": "user", "content": "and?"}]
    read, _, found = talk.ask(dialect, {name: history}, THOUGHT)

    assert found == findings
    assert read[1].get("reasoning") == ("hm" if with_reasoning else None)


@pytest.mark.parametrize(("message", "name"), SEALS)
def test_what_only_another_party_can_read_is_named(message, name):
    talk = Talk()
    body = {"messages": [QUESTION, {"role": "assistant", **message}, QUESTION], "max_tokens": 9}

    assert talk.read("messages", body).not_applied == [name]


def test_a_failed_tool_and_foreign_reasoning_are_named():
    result = {"type": "tool_result", "tool_use_id": "c", "content": "no such file", "is_error": True}
    body = {"messages": [{"role": "user", "content": [result]}], "max_tokens": 9}
    assert Talk().read("messages", body).not_applied == ["is_error"]

    legacy = {"role": "function", "name": "f", "content": "1"}
    assert Talk().read("chat", {"messages": [QUESTION, legacy]}).not_applied == ["messages.function"]

    item = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    assert Talk().read("responses", {"input": [item, QUESTION]}).not_applied == ["encrypted_content"]


@pytest.mark.parametrize("gap", ["", " "])
def test_an_answer_goes_on_from_its_prefill_and_is_continued(gap):
    talk = Talk()
    prefill = {"role": "assistant", "content": "The answer" + gap}
    body = {"messages": [QUESTION, prefill], "max_tokens": 9}

    request = talk.read("messages", body)
    sent = json.loads(request.for_engine("m", {}))
    assert (sent["continue_final_message"], sent["add_generation_prompt"], sent["messages"][-1]) == (
        True,
        False,
        prefill,
    )
    _, reply, findings = talk.ask("messages", body, {"role": "assistant", "content": " is 4"})
    assert (reply["content"][0]["text"], findings) == (" is 4", [])
    history = [QUESTION, {"role": "assistant", "content": f"The answer{gap} is 4"}, {"role": "user", "content": "and?"}]
    _, _, findings = talk.ask("messages", {"messages": history, "max_tokens": 9}, {"role": "assistant", "content": "5"})
    assert findings == []


def test_a_chain_goes_on_whatever_other_rollouts_hold():
    talks, before = [Talk() for _ in range(40)], {}
    for turn in range(3):
        for talk in talks:
            body = {"input": f"{turn}" + "x" * 500_000, "previous_response_id": before.get(talk)}
            read, reply, findings = talk.ask("responses", body, {"role": "assistant", "content": f"heard {turn}"})
            before[talk] = reply["id"]
            assert (len(read), findings) == (2 * turn + 1, [])
