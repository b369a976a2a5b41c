# pyright: strict, reportReturnType=false, reportUnnecessaryTypeIgnoreComment=true
"""Decorators and blocks as type checkers see them, which is part of the interface: ``make check`` holds it.

A line that is ignored is wrong, and a checker that does not notice it fails the check.
"""

from collections.abc import AsyncIterator, Generator, Iterator
from typing import TypeVar, assert_type

import tracer

T = TypeVar("T")


@tracer.tool
def plain(a: int, b: str = "") -> float: ...


@tracer.tool(name="other")
async def later(a: int) -> float: ...


@tracer.agent(role="aux")
def generator(a: int) -> Iterator[str]: ...


@tracer.step
async def async_generator(a: int) -> AsyncIterator[str]:
    yield str(a)


class WriteTargets:
    @tracer.tool
    def method(self, a: int) -> str: ...

    @tracer.tool
    @staticmethod
    def static(a: int) -> str: ...

    @staticmethod
    @tracer.tool
    def static_outside(a: int) -> str: ...

    @tracer.agent(name="maker")
    @classmethod
    async def make(cls, a: int) -> "WriteTargets": ...

    @classmethod
    @tracer.step
    def make_outside(cls, a: int) -> "WriteTargets": ...


@tracer.tool
def full(a: int) -> Generator[int, str, float]:
    heard = yield a
    return float(heard)


@tracer.tool
def identity(value: T) -> T:
    return value


@tracer.rollout(task="t", run="r")
async def solve(task: str) -> bool: ...


async def use() -> None:
    assert_type(plain(1, b="x"), float)
    assert_type(await later(1), float)
    assert_type(generator(1), Iterator[str])
    assert_type(async_generator(1), AsyncIterator[str])
    assert_type(await solve("x"), bool)
    assert_type(WriteTargets().method(1), str)
    assert_type(WriteTargets.static(1), str)
    assert_type(WriteTargets.static_outside(1), str)
    assert_type(await WriteTargets.make(1), WriteTargets)
    assert_type(WriteTargets.make_outside(1), WriteTargets)
    assert_type(full(1), Generator[int, str, float])
    assert_type(identity("x"), str)
    with tracer.rollout(task="t") as one:
        assert_type(one, tracer.Rollout)
    async with tracer.rollout(task="t", task_type="math", split="eval") as other:
        other.reward(1.0, step=2)
    assert_type(tracer.current(), tracer.Rollout | None)
    assert_type(tracer.flush().pending, int)
    plain("x")  # pyright: ignore[reportArgumentType]
    WriteTargets().method("x")  # pyright: ignore[reportArgumentType]
    tracer.tool(3)  # pyright: ignore[reportArgumentType]
    tracer.agent(role="judge")  # pyright: ignore[reportArgumentType]
    tracer.rollout(task="t", splti="eval")  # pyright: ignore[reportCallIssue]
