"""The decorators keep types: what they do to a type checker is part of the interface."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

PROGRAM = """
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
    yield ""

class Desk:
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
    async def make(cls, a: int) -> "Desk": ...

    @classmethod
    @tracer.step
    def make_outside(cls, a: int) -> "Desk": ...

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
    assert_type(Desk().method(1), str)
    assert_type(Desk.static(1), str)
    assert_type(Desk.static_outside(1), str)
    assert_type(await Desk.make(1), Desk)
    assert_type(Desk.make_outside(1), Desk)
    assert_type(full(1), Generator[int, str, float])
    assert_type(identity("x"), str)
    with tracer.rollout(task="t") as one:
        assert_type(one, tracer.Rollout)
    async with tracer.rollout(task="t", task_type="math", split="eval") as other:
        other.reward(1.0, step=2)
    assert_type(tracer.current(), tracer.Rollout | None)
    assert_type(tracer.flush().pending, int)
    plain("x")  # wrong
    Desk().method("x")  # wrong
    tracer.tool(3)  # wrong
    tracer.agent(role="judge")  # wrong
    tracer.rollout(task="t", splti="eval")  # wrong
"""


def test_decorated_functions_keep_their_types(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    config = {"typeCheckingMode": "strict", "reportReturnType": False, "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(tmp_path)]

    found = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)

    wrong = [number for number, line in enumerate(PROGRAM.splitlines()) if line.endswith("# wrong")]
    errors = [one["range"]["start"]["line"] for one in json.loads(found.stdout)["generalDiagnostics"]]
    assert sorted(set(errors)) == wrong, found.stdout
