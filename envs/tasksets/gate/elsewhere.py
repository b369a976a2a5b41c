"""The same tasks and verdicts in another process: with other hashes, at another time, in another time zone."""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from agent_layer.schema import Split, Task, content_hash
from envs.sandbox import PoolOptions, open_pool
from envs.script import Script
from envs.tasksets.gate.script_judge import Judgement, ScriptJudge
from envs.tasksets.sources import open_source
from envs.tasksets.taskset import TaskSet

NUM_DRAWN: Final = 8
"""Tasks of each split and level that are drawn again."""
_SPLITS: Final[tuple[Split, ...]] = ("train", "eval")
_PROGRAM: Final = (
    "import sys, json; sys.path[:0] = json.loads(sys.stdin.buffer.readline());"
    " from envs.tasksets.gate.elsewhere import answer_request; answer_request()"
)
_CHILD_SECONDS: Final = 300.0
_LATER_SECONDS: Final = 400 * 86_400 + 7 * 3600 + 11
_LIMIT: Final = 1 << 28


class Place(NamedTuple):
    """Where tasks and verdicts are made again."""

    name: str
    hash_seed: str
    is_later: bool
    """Whether its clock is 400 days ahead, in another time zone."""


PLACES: Final = (Place("another process", "random", is_later=False), Place("another time", "7", is_later=True))


class JudgedScript(msgspec.Struct, frozen=True):
    """A script for a task."""

    task: Task
    script: Script


class _Request(msgspec.Struct, frozen=True):
    name: str
    seed: int
    levels: list[int]
    scripts: list[JudgedScript]
    later_seconds: float


class Elsewhere(msgspec.Struct, frozen=True):
    """What came out in the other process."""

    hashes: list[str]
    """Hash of the first tasks of each level."""
    judgements: list[Judgement]


def hash_tasks(taskset: TaskSet, level: int, seed: int) -> str:
    """Return a hash of the first tasks of a level."""
    drawn = [
        msgspec.json.encode(task)
        for split in _SPLITS
        for task in taskset.tasks(split=split, seed=seed, level=level, count=NUM_DRAWN)
    ]
    return content_hash(b"\n".join(drawn))


async def repeat_elsewhere(
    place: Place, name: str, levels: Sequence[int], seed: int, scripts: Sequence[JudgedScript] = ()
) -> Elsewhere | str:
    """Draw tasks and score scripts in another process; return what went wrong if it fails."""
    variables = [f"PYTHONHASHSEED={place.hash_seed}", *(["TZ=Pacific/Kiritimati"] if place.is_later else [])]
    request = _Request(name, seed, list(levels), list(scripts), _LATER_SECONDS if place.is_later else 0.0)
    child = await asyncio.create_subprocess_exec(
        *("env", *variables, sys.executable, "-c", _PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LIMIT,
    )
    path = json.dumps([one for one in sys.path if one]).encode()
    try:
        async with asyncio.timeout(_CHILD_SECONDS):
            output, errors = await child.communicate(path + b"\n" + msgspec.json.encode(request, enc_hook=repr))
    except TimeoutError:
        return f"it took longer than {_CHILD_SECONDS:g} s"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    try:
        return msgspec.json.decode(output.splitlines()[-1], type=Elsewhere)
    except (IndexError, msgspec.DecodeError):
        return errors.decode("utf-8", "replace").strip().rpartition("\n")[2] or f"it ended with {child.returncode}"


def answer_request() -> None:
    """Draw and score what standard input asks for, in the other process."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request)
    output = os.dup(1)
    os.dup2(2, 1)  # what a set prints is its own affair
    if request.later_seconds:
        _move_clock(request.later_seconds)
        time.tzset()
    random.seed(request.later_seconds)
    taskset = open_source(request.name)
    hashes = [hash_tasks(taskset, level, request.seed) for level in request.levels]
    answer = msgspec.json.encode(Elsewhere(hashes, asyncio.run(_judge(request.scripts))))
    with os.fdopen(output, "wb") as file:
        file.write(b"\n" + answer)


async def _judge(scripts: Sequence[JudgedScript]) -> list[Judgement]:
    if not scripts:
        return []
    async with open_pool(options=PoolOptions(ready_per_spec=1)) as pool:
        judge = ScriptJudge(pool)
        return [await judge.judge(one.task, one.script) for one in scripts]


def _move_clock(seconds: float) -> None:
    """Let this process believe that it is later."""
    import datetime  # noqa: PLC0415  # its classes are replaced

    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds) * 10**9

    def move(plain: Callable[[float], object]) -> Callable[[float | None], object]:
        return lambda at=None: plain(time.time() if at is None else at)

    for name in ("gmtime", "localtime", "ctime"):
        setattr(time, name, move(getattr(time, name)))

    class AnyTime(type):
        """A class with instances of the class in whose place it stands."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, cls.__mro__[1])

    class Later(datetime.datetime, metaclass=AnyTime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Later":
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> "Later":
            return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> "Later":
            return cls.now()

    class LaterDate(datetime.date, metaclass=AnyTime):
        @classmethod
        def today(cls) -> "LaterDate":
            return cls.fromtimestamp(time.time())

    datetime.datetime, datetime.date = Later, LaterDate
