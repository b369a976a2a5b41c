"""Models that act in environments: tools, images, and prompts that outgrow their context."""

import asyncio
import base64
import json
from typing import ClassVar

import pytest

from agent_layer.schema.task import Limits
from envs import EnvContext, StepResult, ToolCalls, ToolDefinition, ToolEnvironment, ToolResult
from envs.tools import ToolError, calculator, tool
from trainer_adapter.data import samples_of

from ...waiting import within
from .conftest import tool_call

PNG = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 2).decode()


def scripted(*answers):
    """Return a script of these answers, one per turn."""
    return lambda prompt: answers[prompt.turn]


def read_messages(engine, number):
    return engine.calls[number].body["messages"]


def assert_each_token_is_trained_once(trajectory, engine):
    sampled = {}
    for step in trajectory.steps:
        if step.status == "ok":
            sampled[step.call_id] = len(step.action.response_token_ids)
    found = samples_of(trajectory)
    trained = {}
    for sample in found.samples:
        for ref in sample.steps:
            trained[ref.call_id] = trained.get(ref.call_id, 0) + ref.num_tokens
    assert trained == sampled
    assert sum(sum(sample.loss_mask) for sample in found.samples) == sum(sampled.values())
    assert sum(sampled.values()) == sum(len(one.token_ids[0]) for one in engine.calls)


@tool
async def meet(context: EnvContext, name: str) -> str:
    """Wait for the other call.

    Args:
        context: the attempt.
        name: who comes.
    """
    async with within(20, "the other call"):
        await context.barrier.wait()
    return f"{name} met"


@tool
def look(what: str) -> ToolResult:
    """Look at a thing."""
    return ToolResult(text=f"a picture of {what}", images=[PNG])


@tool
def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


class Workshop(ToolEnvironment):
    """Has tools, and ends when the model says something."""

    tools: ClassVar = [meet, look, fail, "envs.tools:calculator"]

    async def reset(self, _task, context):
        context.barrier = asyncio.Barrier(2)
        return "work"

    async def step(self, _action):
        return StepResult(reward=1.0, done=True)


async def test_calls_of_one_answer_run_side_by_side_and_are_answered_in_their_order(harness, task):
    calls = [tool_call("meet", "c1", name="Ann"), tool_call("meet", "c2", name="Bob")]
    harness.engine.script = scripted({"tool_calls": calls}, "done")

    (trajectory,) = await harness.run(Workshop, task())

    assert trajectory.reward == 1.0
    assert [message["role"] for message in read_messages(harness.engine, 1)] == ["user", "assistant", "tool", "tool"]
    assert [(one["tool_call_id"], one["content"]) for one in read_messages(harness.engine, 1)[2:]] == [
        ("c1", "Ann met"),
        ("c2", "Bob met"),
    ]
    assert [(one.name, one.arguments, one.output, one.status) for one in trajectory.observations] == [
        ("meet", {"name": "Ann"}, "Ann met", "ok"),
        ("meet", {"name": "Bob"}, "Bob met", "ok"),
        ("Workshop", "done", None, "ok"),
    ]
    assert {one.call_id for one in trajectory.observations[:2]} == {trajectory.steps[0].call_id}
    assert [one["function"]["name"] for one in harness.engine.calls[0].body["tools"]] == [
        "meet",
        "look",
        "fail",
        "calculator",
    ]
    assert trajectory.steps[1].prompt.parent_call == trajectory.steps[0].call_id
    assert_each_token_is_trained_once(trajectory, harness.engine)


MISTAKES = [
    (tool_call("hammer"), "unknown_tool", "there is no tool 'hammer'"),
    ({"id": "c0", "function": {"name": "look", "arguments": '{"what": '}}, "malformed_arguments", "no JSON object"),
    ({"id": "c0", "function": {"name": "look", "arguments": '["a"]'}}, "malformed_arguments", "no JSON object"),
    (tool_call("look", what=5), "unfit_arguments", "expected what to be string, found 5"),
    (tool_call("look"), "unfit_arguments", "expected what, found none"),
    (tool_call("look", what="x", colour="red"), "unfit_arguments", "there is no colour"),
    (tool_call("fail", reason="the file is gone"), "tool_error", "the file is gone"),
    (tool_call("calculator", expression="9**9**9"), "tool_error", "bits"),
]


async def test_a_wrong_call_is_answered_so_that_the_model_can_correct_it(harness, task):
    harness.engine.script = scripted(*({"tool_calls": [wrong]} for wrong, _, _ in MISTAKES), "done")

    (trajectory,) = await harness.run(Workshop, task())

    assert trajectory.reward == 1.0
    assert len(trajectory.steps) == len(MISTAKES) + 1
    request = read_messages(harness.engine, len(MISTAKES))
    for (_, kind, reply), step, observation, message in zip(
        MISTAKES, trajectory.steps, trajectory.observations, request[2::2], strict=False
    ):
        assert f"tool_error:{kind}" in step.findings
        assert (observation.status, observation.call_id) == ("error", step.call_id)
        assert reply in observation.output
        assert (message["role"], message["content"]) == ("tool", observation.output)
    for message in request[1::2]:
        (one,) = message["tool_calls"]
        assert isinstance(json.loads(one["function"]["arguments"]), dict)
    assert harness.store.count(finding="tool_error") == 1


async def test_an_image_stays_visible_and_is_stored_once(harness, task):
    again = {"tool_calls": [tool_call("calculator", "c2", expression="1+1")]}
    harness.engine.script = scripted({"tool_calls": [tool_call("look", "c1", what="it")]}, again, "done")

    (trajectory,) = await harness.run(Workshop, task())

    for number in (1, 2):
        shown = read_messages(harness.engine, number)[3]
        assert shown["role"] == "user"
        assert shown["content"][1] == {"type": "image_url", "image_url": {"url": PNG}}
    (reference,) = trajectory.observations[0].output["images"]
    assert json.loads(trajectory.contents[reference["$content"]]) == PNG


async def test_the_first_message_and_observations_show_images_too(harness, task):
    class Gallery(ToolEnvironment):
        async def reset(self, _task):
            return StepResult(observation="what is it?", images=[PNG])

        async def step(self, action):
            return StepResult(observation="and this?", images=[PNG], done=action == "a dog")

    harness.engine.script = scripted("a cat", "a dog")

    await harness.run(Gallery, task())

    shown = [one["content"] for one in read_messages(harness.engine, 1) if one["role"] == "user"]
    assert [[part["type"] for part in content] for content in shown] == [["text", "image_url"]] * 2


async def test_a_tool_that_breaks_fails_the_attempt_and_not_the_policy(harness, task, until):
    @tool
    async def broken() -> str:
        raise RuntimeError("no such pump")

    class Broken(Workshop):
        tools: ClassVar = [broken]

    harness.engine.script = scripted({"tool_calls": [tool_call("broken")]}, "done")
    async with harness.worker(Broken):
        harness.dispatcher.submit([task()])
        failed = await until(lambda: [row for row in harness.store.query().items if row.status == "failed"])

    outcome = harness.store.get(failed[0].trajectory_id).outcome
    assert outcome.cause == "user"
    assert "no such pump" in outcome.error


class Board(ToolEnvironment):
    """Carries out moves itself, beside a tool that runs by itself."""

    tools: ClassVar = [
        calculator,
        ToolDefinition(
            name="move",
            description="Move a piece.",
            parameters={"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]},
        ),
    ]

    def __init__(self, context):
        self.seed, self.draw = context.seed, context.rng.random()

    async def reset(self, _task, context):
        return {"seed": self.seed, "draw": self.draw, "now": context.clock() > 1e9}

    async def step(self, action, context):
        assert isinstance(action, ToolCalls)
        assert context.seed == self.seed
        places = [one.arguments["to"] for one in action.calls]
        return StepResult(observation=[f"at {place}" for place in places], reward=0.5, done=places == [3])


async def test_an_environment_carries_out_calls_of_its_own(harness, task):
    mixed = [
        tool_call("move", "c1", to=1),
        tool_call("calculator", "c2", expression="1/4"),
        tool_call("move", "c3", to=2),
    ]
    harness.engine.script = scripted(
        {"content": "so", "tool_calls": mixed},
        {"tool_calls": [tool_call("move", "c4", to="x")]},
        {"tool_calls": [tool_call("move", to=3)]},
    )

    (trajectory,) = await harness.run(Board, task(seed=7))

    first = json.loads(read_messages(harness.engine, 0)[0]["content"])
    assert (first["seed"], first["now"]) == (7, True)
    assert [one["content"] for one in read_messages(harness.engine, 1)[2:]] == ["at 1", "0.25", "at 2"]
    assert trajectory.reward == 1.0
    assert [one.status for one in trajectory.observations] == ["ok", "ok", "ok", "error", "ok"]


class Stream(ToolEnvironment):
    """Answers with long observations, and pays for each turn."""

    last: ClassVar = 40
    words: ClassVar = 60

    async def reset(self, _task):
        self.turns = 0
        return "begin"

    async def step(self, _action):
        self.turns += 1
        text = " ".join(f"w{self.turns}x{number}" for number in range(self.words))
        return StepResult(observation=text, reward=0.25, done=self.turns == self.last)


def speak(prompt):
    if "Write a summary" in prompt.text:
        return f"summary after {prompt.turn} answers"
    return "an answer of several words"


def sizes(engine):
    return [len(one.prompt_token_ids) + len(one.token_ids[0]) for one in engine.calls]


@pytest.mark.parametrize("history", ["drop_observations", "summarise"])
async def test_forty_turns_in_a_window_of_2000_tokens_are_trained_once_each(harness, task, history):
    harness.engine.script = speak
    harness.engine.context_tokens = 2000

    limits = Limits(context_tokens=2000)
    (trajectory,) = await harness.run(Stream, task(history=history, limits=limits))

    assert (trajectory.outcome.status, trajectory.reward) == ("completed", 10.0)
    assert max(sizes(harness.engine)) <= 2000
    assert max(sizes(harness.engine)) > 1000
    summaries = [step for step in trajectory.steps if "summary after" in step.action.message["content"]]
    assert len(trajectory.steps) == 40 + len(summaries)
    assert bool(summaries) == (history == "summarise")
    assert all(step.role == "policy" for step in trajectory.steps)
    assert_each_token_is_trained_once(trajectory, harness.engine)


async def test_a_summary_takes_the_place_of_the_turns_that_it_summarises(harness, task):
    harness.engine.script = speak

    await harness.run(Stream, task(history="summarise", limits=Limits(context_tokens=2000)))

    number = next(place for place, one in enumerate(harness.engine.calls) if "Write a summary" in str(one.body))
    before, command, after = (read_messages(harness.engine, place) for place in (number - 1, number, number + 1))
    assert command[:-1] == before[:-1]
    assert len(after) == 3
    assert after[0]["content"].startswith("begin\n\nSummary of your work so far:\nsummary after ")
    assert after[1]["role"] == "assistant"
    assert after[2]["content"].startswith(f"w{len(before) // 2 + 1}x0 ")


async def test_dropped_observations_are_the_oldest_and_the_rest_stays(harness, task):
    harness.engine.script = speak

    await harness.run(Stream, task(history="drop_observations", limits=Limits(context_tokens=2000)))

    number = next(place for place, one in enumerate(harness.engine.calls) if "dropped" in str(one.body))
    contents = [one["content"] for one in read_messages(harness.engine, number) if one["role"] == "user"]
    dropped = [place for place, one in enumerate(contents) if one == "[observation dropped to make room]"]
    assert contents[0] == "begin"
    assert dropped == list(range(1, 1 + len(dropped)))
    assert contents[-1].startswith(f"w{number}x0 ")


@pytest.mark.parametrize("limited_by", ["task", "engine"])
async def test_a_full_context_is_truncated_by_the_policy_and_keeps_its_rewards(harness, task, limited_by):
    harness.engine.script = speak
    if limited_by == "engine":
        harness.engine.context_tokens = 1000
    limits = Limits(context_tokens=1000 if limited_by == "task" else None)

    (trajectory,) = await harness.run(Stream, task(limits=limits))

    outcome = trajectory.outcome
    assert (outcome.status, outcome.cause) == ("truncated", "policy")
    assert "context_length_exceeded" in outcome.error
    num_answered = sum(step.status == "ok" for step in trajectory.steps)
    assert 3 < num_answered < 20
    assert trajectory.reward == 0.25 * num_answered
    assert_each_token_is_trained_once(trajectory, harness.engine)


@pytest.mark.parametrize("history", ["drop_observations", "summarise"])
async def test_where_only_the_engine_knows_its_context_room_is_made_when_it_refuses(harness, task, history):
    harness.engine.script = speak
    harness.engine.context_tokens = 2000

    (trajectory,) = await harness.run(Stream, task(history=history))

    assert (trajectory.outcome.status, trajectory.reward) == ("completed", 10.0)
    assert any(step.status == "error" for step in trajectory.steps)


async def test_a_long_observation_loses_its_middle(harness, task):
    harness.engine.script = speak

    class Flood(Stream):
        last: ClassVar = 2
        words: ClassVar = 5000

    await harness.run(Flood, task(limits=Limits(observation_tokens=200)))

    shown = read_messages(harness.engine, 1)[-1]["content"]
    assert shown.startswith("w1x0 w1x1 ")
    assert "characters cut out" in shown
    assert len(harness.engine.calls[1].prompt_token_ids) < 300
