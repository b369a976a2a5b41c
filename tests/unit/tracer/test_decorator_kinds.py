"""Decorators on every kind of function: results, exceptions and signature stay unchanged."""

import asyncio
import gc
import inspect

import pytest

import tracer
from agent_layer.errors import BackPressureError
from agent_layer.schema.step import Observation
from agent_layer.settings import Settings
from tracer.session import Session, use_session


class WriteTargets:
    """Every kind of method, the decorator on either side of Python's own."""

    @tracer.tool
    def plain(self, a):
        return ("plain", a)

    @tracer.tool
    @staticmethod
    def static(a):
        return ("static", a)

    @staticmethod
    @tracer.tool
    def static_inside(a):
        return ("static_inside", a)

    @tracer.tool(name="named")
    @classmethod
    def of_class(cls, a):
        return (cls.__name__, a)

    @classmethod
    @tracer.tool
    async def of_class_inside(cls, a):
        return (cls.__name__, a)


class Corner(WriteTargets):
    pass


async def test_methods_of_every_kind_are_observed():
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        desk = Corner()
        given = [desk.plain(1), desk.static(2), Corner.static_inside(3), Corner.of_class(4), desk.of_class(5)]
        given.append(await Corner.of_class_inside(6))

    assert given == [("plain", 1), ("static", 2), ("static_inside", 3), ("Corner", 4), ("Corner", 5), ("Corner", 6)]
    observed = [(one.name, one.arguments["a"]) for one in captured.trajectory.observations]
    names = ["plain", "static", "static_inside", "named", "named", "of_class_inside"]
    assert observed == list(zip(names, range(1, 7), strict=True))


async def test_a_function_that_gives_a_coroutine_is_observed_when_that_ends():
    @tracer.tool
    def later(a):
        async def add():
            await asyncio.sleep(0)
            return a + 1

        return add()

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert await later(1) == 2

    (observation,) = captured.trajectory.observations
    assert (observation.output, observation.status) == (2, "ok")


def test_arguments_that_do_not_fit_raise_what_python_raises():
    @tracer.tool
    def exact(a):
        return a

    @tracer.tool
    def items(a):
        yield a

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
            exact()
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
            list(items())

    assert [one.status for one in captured.trajectory.observations] == ["error", "error"]


def test_decorators_may_be_stacked():
    @tracer.agent(name="solver")
    @tracer.step(name="decide")
    def decide(messages):
        return f"{len(messages)}"

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert decide([]) == "0"

    (step,) = captured.trajectory.steps
    assert (step.agent, step.node) == ("solver", "decide")


@tracer.step
def decide(messages):
    return messages


def test_agents_know_who_called_them_and_which_call_led_there():
    @tracer.agent
    def checker():
        return decide("checked")

    @tracer.agent
    def solver():
        decide("solved")
        checker()
        return decide("done")

    with tracer.testing.capture() as captured, tracer.rollout(task="t", agent="lead"):
        decide("begun")
        solver()
        tracer.reward(0.5, agent="checker")
        tracer.reward(0.25, step=2)

    reported = [(step.agent, step.agent_path) for step in captured.trajectory.steps]
    assert reported == [
        ("lead", None),
        ("solver", ["lead", "solver"]),
        ("checker", ["lead", "solver", "checker"]),
        ("solver", ["lead", "solver"]),
    ]
    calls = [step.call_id for step in captured.trajectory.steps]
    assert [step.parent_call for step in captured.trajectory.steps] == [None, *calls[:-1]]
    judged = [(one.scope, one.agent, one.step, one.score) for one in captured.trajectory.rewards]
    assert judged == [("agent", "checker", None, 0.5), ("step", None, 2, 0.25)]


def test_a_generator_that_is_collected_as_garbage_is_observed_once():
    @tracer.tool
    def endless():
        while True:
            yield 1

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        items = endless()
        next(items)
        del items
        gc.collect(1)

    (observation,) = captured.trajectory.observations
    assert observation.status == "error"


async def test_a_generator_that_outlives_its_rollout_is_observed_once():
    @tracer.tool
    async def endless():
        while True:
            yield 1

    with tracer.testing.capture() as captured:
        async with tracer.rollout(task="t"):
            items = endless()
            await anext(items)
        await items.aclose()

    (observation,) = captured.trajectory.observations
    assert (observation.status, observation.output) == (None, None)


class FullLog:
    """A log that takes no observations, as when the disk is full."""

    def append(self, *records):
        if any(isinstance(record, Observation) for record in records):
            raise BackPressureError("log: expected room, found none")
        return "log"


def test_an_error_of_the_log_does_not_hide_the_functions_own():
    @tracer.tool
    def fail():
        raise ValueError("mine")

    into = use_session(Session(settings=Settings(), sink=FullLog()))
    with into, tracer.rollout(task="t"), pytest.raises(ValueError, match="mine") as raised:
        fail()

    assert "found none" in raised.value.__notes__[0]


def test_inspection_sees_the_function_itself():
    assert inspect.iscoroutinefunction(WriteTargets.of_class_inside)
    assert isinstance(inspect.getattr_static(WriteTargets, "static"), staticmethod)
    assert isinstance(inspect.getattr_static(WriteTargets, "of_class"), classmethod)
    assert WriteTargets.plain.__qualname__ == "WriteTargets.plain"
