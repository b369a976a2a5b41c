import asyncio
import inspect
import json

import pytest

import tracer
from agent_layer.errors import BadInputError
from agent_layer.schema.messages import resolve
from tracer.core.scope import current_scope


@tracer.tool
def divide(a: float, b: float = 2.0) -> float:
    """Divide."""
    return a / b


@tracer.tool(name="slow")
async def divide_later(a: float, b: float) -> float:
    await asyncio.sleep(0)
    return a / b


@tracer.tool
def countdown(start: int):
    answer = yield from range(start, 0, -1)
    return answer or "lift-off"


@tracer.tool
async def countdown_later(start: int):
    for number in range(start, 0, -1):
        await asyncio.sleep(0)
        yield number


@tracer.step
def decide(messages: list, temperature: float = 1.0) -> str:
    return f"{len(messages)} at {temperature}"


class Room:
    @tracer.tool
    def look(self, where: str) -> dict:
        return {"seen": where}


def test_a_tool_is_observed_with_arguments_output_and_time():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert divide(1, b=4) == 0.25

    (observation,) = captured.trajectory.observations
    assert (observation.name, observation.arguments, observation.output) == ("divide", {"a": 1, "b": 4}, 0.25)
    assert observation.status == "ok"
    assert 0 <= observation.duration_seconds < 1


def test_a_tool_that_raises_is_observed_and_raises():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"), pytest.raises(ZeroDivisionError):
        divide(1, 0)

    (observation,) = captured.trajectory.observations
    assert (observation.status, observation.output) == ("error", "ZeroDivisionError('division by zero')")


async def test_tools_of_every_kind_are_observed():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert await divide_later(1, 4) == 0.25
        assert list(countdown(2)) == [2, 1]
        assert [number async for number in countdown_later(2)] == [2, 1]
        assert Room().look("left") == {"seen": "left"}

    observed = [(one.name, one.output) for one in captured.trajectory.observations]
    assert observed == [
        ("slow", 0.25),
        ("countdown", [2, 1]),
        ("countdown_later", [2, 1]),
        ("look", {"seen": "left"}),
    ]
    assert captured.trajectory.observations[3].arguments == {"where": "left"}


def test_decorated_functions_keep_their_kind_name_and_signature():
    assert not inspect.iscoroutinefunction(divide)
    assert inspect.iscoroutinefunction(divide_later)
    assert inspect.isgeneratorfunction(countdown)
    assert inspect.isasyncgenfunction(countdown_later)
    assert (divide.__name__, divide.__doc__) == ("divide", "Divide.")
    assert list(inspect.signature(divide).parameters) == ["a", "b"]


async def test_outside_a_rollout_decorated_functions_run_as_they_are():
    with tracer.testing.capture() as captured:
        assert divide(1) == 0.5
        assert await divide_later(1, 4) == 0.25
        assert list(countdown(2)) == [2, 1]
        assert [number async for number in countdown_later(2)] == [2, 1]
        assert decide([]) == "0 at 1.0"
        tracer.state(anything=1)

    assert captured.records == []


def test_a_generator_speaks_with_its_consumer_as_ever():
    @tracer.tool
    def talk():
        heard = yield "first"
        try:
            yield f"heard {heard}"
        except ValueError as error:
            yield f"caught {error}"
        return "result"

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        talking = talk()
        assert next(talking) == "first"
        assert talking.send("this") == "heard this"
        assert talking.throw(ValueError("that")) == "caught that"
        with pytest.raises(StopIteration) as stopped:
            next(talking)

    assert stopped.value.value == "result"
    assert captured.trajectory.observations[0].output == ["first", "heard this", "caught that"]


async def test_an_asynchronous_generator_speaks_with_its_consumer_as_ever():
    @tracer.tool
    async def talk():
        heard = yield "first"
        try:
            yield f"heard {heard}"
        except ValueError as error:
            yield f"caught {error}"

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        talking = talk()
        assert await anext(talking) == "first"
        assert await talking.asend("this") == "heard this"
        assert await talking.athrow(ValueError("that")) == "caught that"
        with pytest.raises(StopAsyncIteration):
            await anext(talking)

    assert captured.trajectory.observations[0].status == "ok"


async def test_an_abandoned_generator_closes_the_function_and_is_an_error():
    closed = []

    @tracer.tool
    def endless():
        try:
            while True:
                yield 1
        finally:
            closed.append("sync")

    @tracer.tool
    async def endless_later():
        try:
            while True:
                yield 1
        finally:
            closed.append("async")

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        one, other = endless(), endless_later()
        next(one)
        one.close()
        await anext(other)
        await other.aclose()

    assert closed == ["sync", "async"]
    assert [one.status for one in captured.trajectory.observations] == ["error", "error"]


def test_a_scope_ends_between_the_items_of_a_generator():
    seen = []

    @tracer.agent(name="speaker")
    def speak():
        for _ in range(2):
            yield current_scope().agent

    with tracer.testing.capture(), tracer.rollout(task="t"):
        for inside in speak():
            seen += [inside, current_scope().agent]

    assert seen == ["speaker", None, "speaker", None]


def test_a_step_without_a_traced_client_is_recorded_from_its_arguments():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        decide([{"role": "user", "content": "hi"}], temperature=0.5)

    (step,) = captured.trajectory.steps
    contents = captured.trajectory.contents
    assert (step.node, step.status, step.capture_level) == ("decide", "ok", "text")
    assert step.action.message == {"role": "assistant", "content": "1 at 0.5"}
    assert [json.loads(contents[key]) for key in step.state.messages] == [{"role": "user", "content": "hi"}]
    assert resolve(contents, step.state.framework) == {"temperature": 0.5}


def test_a_step_that_fails_is_an_error_step():
    @tracer.step
    def fail():
        raise RuntimeError("no model")

    with tracer.testing.capture() as captured, tracer.rollout(task="t"), pytest.raises(RuntimeError):
        fail()

    assert captured.trajectory.steps[0].status == "error"


def test_what_a_tool_gives_belongs_to_the_call_before_it():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        divide(1)
        decide([])
        divide(2)

    before, after = captured.trajectory.observations
    assert (before.call_id, after.call_id) == (None, captured.trajectory.steps[0].call_id)


def test_agents_have_names_roles_and_causes_of_their_own():
    @tracer.agent(name="judge", role="aux")
    def judge():
        decide([])

    @tracer.agent
    def solver():
        decide([])
        judge()
        decide([])

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        solver()

    first, judged, second = captured.trajectory.steps
    assert [(step.agent, step.role) for step in (first, judged, second)] == [
        ("solver", "policy"),
        ("judge", "aux"),
        ("solver", "policy"),
    ]
    assert (first.parent_call, judged.parent_call, second.parent_call) == (None, first.call_id, judged.call_id)


def test_the_environments_state_is_that_of_the_calls_that_follow():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        decide([])
        tracer.state(registry=[[0, 1], [1, 0]], turn=2)
        decide([])

    first, second = captured.trajectory.steps
    assert first.state.environment is None
    assert resolve(captured.trajectory.contents, second.state.environment) == {"registry": [[0, 1], [1, 0]], "turn": 2}


def test_a_very_long_output_is_cut_and_says_so():
    @tracer.tool
    def read():
        return "x" * (2 << 20)

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert len(read()) == 2 << 20

    (observation,) = captured.trajectory.observations
    assert observation.truncated
    assert len(observation.output) == 1 << 20


def test_a_function_that_does_not_tell_its_arguments_is_refused_with_a_remedy():
    with pytest.raises(BadInputError, match="decorate a function of your own that calls it"):
        tracer.tool(max)


def test_an_object_of_a_framework_is_refused_with_a_remedy():
    with pytest.raises(BadInputError, match="put the tracer's decorator below the framework's"):
        tracer.tool(object())
