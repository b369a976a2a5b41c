"""Processes in which foreign packages run: an interpreter that has the package, and a guest program that is asked.

    play, score ──▶ ask_foreign ──▶ one of up to 8 processes of the package ──▶ guest program ──▶ the package
                         ▲                                                            │
                         └────────────── model calls, answered by the asker ◀─────────┘

Dependencies of the package never enter this process. ``guest_protocol`` has the lines that both sides speak.
"""

import asyncio
import atexit
import os
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from threading import Lock, Thread, Timer
from typing import Final, NamedTuple, TypeAlias

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError, UnreachableError
from agent_layer.infra import install_command
from agent_layer.schema import JsonObject
from agent_layer.settings import agent_environment, load_settings

AnswerCall: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Takes a role, ``policy`` or ``judge``, and a chat-completions request; returns the completion."""

_GUESTS: Final = Path(__file__).with_name("guest")
_MAX_PROCESSES: Final = 8
"""Processes of one package, for each process of ours."""
_CANCEL_SECONDS: Final = 10.0
"""Time in which a guest must give up a request, before its process is killed."""
_OUTPUT_SECONDS: Final = 1.0
_MAX_OUTPUT_LINES: Final = 20
_MAX_LINE_SHOWN: Final = 200
_NOT_PASSED_ON: Final = ("PYTHONHOME", "VIRTUAL_ENV", "AGENT_LAYER_ADAPTERS_DIR")


class ForeignPackage(NamedTuple):
    """A package whose code runs in processes of its own."""

    name: str
    """Prefix of names, folder of its environment, and extra."""
    module: str
    guest: str
    """File of its guest program."""
    max_runs: int
    """Tasks that one process plays side by side."""
    variables: Mapping[str, str] = {}


class AttemptEndedError(AgentFailedError):
    """No model call of an attempt is answered any more, because it has ended."""


def find_python(package: ForeignPackage) -> str:
    """Return the interpreter that has a package: of its folder in the setting ``adapters_dir``, or else this one.

    Raises: BadInputError: neither has it.
    """
    own = load_settings().adapters_dir / package.name / "bin" / "python"
    if own.exists():
        return str(own.absolute())
    if find_spec(package.module) is not None:
        return sys.executable
    raise BadInputError(
        f"adapter {package.name!r}: expected an interpreter that has {package.module}, found none at {own}; make an"
        f" environment there (python -m venv {own.parents[1]}) and install the package into it, or"
        f" {install_command(package.name)}"
    )


async def ask_foreign(
    package: ForeignPackage, operation: str, request: JsonObject, answer: AnswerCall | None = None
) -> JsonObject:
    """Return what the guest program of a package answers.

    Args:
        package: the package.
        operation: what is asked.
        request: its fields.
        answer: answers model calls; None: there are none.

    Raises:
        BadInputError: the package cannot be started, or refuses the request by name.
        AgentFailedError: its code failed.
        UnreachableError: its process ended.
    """
    process = _acquire(package)
    running = process.begin(operation, request, answer, asyncio.get_running_loop())
    try:
        return await asyncio.wrap_future(running.result)
    except asyncio.CancelledError:
        process.cancel(running)
        raise


def ask_foreign_once(package: ForeignPackage, operation: str, request: JsonObject, seconds: float) -> JsonObject:
    """Return what the guest program answers, without a loop; no model calls. Raises as ``ask_foreign``."""
    process = _acquire(package)
    running = process.begin(operation, request, None, None)
    try:
        return running.result.result(seconds)
    except TimeoutError as error:
        process.cancel(running)
        raise UnreachableError(f"adapter {package.name!r}: no answer in {seconds:g} s; see its output") from error


class _Running:
    """A request that is not answered yet."""

    def __init__(self, number: int, answer: AnswerCall | None, loop: asyncio.AbstractEventLoop | None) -> None:
        self.number = number
        self.answer = answer
        self.loop = loop
        self.failure: BaseException | None = None
        """Of a model call; it is why the request fails."""
        self.result: Future[JsonObject] = Future()


class _Message(msgspec.Struct):
    """A line of a guest program."""

    id: int
    ask: int | None = None
    role: str = "policy"
    body: JsonObject = {}
    result: JsonObject = {}
    error: str | None = None
    is_refusal: bool = False


class ForeignProcess:
    """One process of a package."""

    def __init__(self, package: ForeignPackage) -> None:
        self._package = package
        variables = {name: value for name, value in agent_environment().items() if name not in _NOT_PASSED_ON}
        self._process = subprocess.Popen(
            [find_python(package), str(_GUESTS / package.guest)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**variables, "PYTHONPATH": os.pathsep.join(_user_path()), **package.variables},
        )
        self._lock = Lock()
        self._running: dict[int, _Running] = {}
        self._numbers = count()
        self._output: deque[bytes] = deque(maxlen=_MAX_OUTPUT_LINES)
        self._threads = [Thread(target=run, daemon=True) for run in (self._read, self._keep_output)]
        for thread in self._threads:
            thread.start()

    @property
    def num_running(self) -> int:
        """Requests that are not answered yet."""
        return len(self._running)

    @property
    def is_alive(self) -> bool:
        """Whether it takes requests."""
        return self._process.poll() is None

    def begin(
        self, operation: str, request: JsonObject, answer: AnswerCall | None, loop: asyncio.AbstractEventLoop | None
    ) -> _Running:
        """Send a request."""
        running = _Running(next(self._numbers), answer, loop)
        with self._lock:
            self._running[running.number] = running
        self._send({**request, "id": running.number, "op": operation})
        if not self.is_alive:  # its end may have been noticed before this request
            self._fail_all()
        return running

    def cancel(self, running: _Running) -> None:
        """Withdraw a request; a guest that does not is killed."""
        self._send({"id": running.number, "op": "cancel"})
        timer = Timer(_CANCEL_SECONDS, self._kill_if_running, [running.number])
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(_OUTPUT_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _kill_if_running(self, number: int) -> None:
        if number in self._running:
            self._process.kill()

    def _send(self, message: JsonObject) -> None:
        assert self._process.stdin is not None
        with self._lock, suppress(OSError):  # its end is noticed by the reader
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message = msgspec.json.decode(line, type=_Message)
            except msgspec.DecodeError:  # foreign code wrote into the pipe
                self._output.append(b"no message: " + line[:_MAX_LINE_SHOWN])
                self._process.kill()
                break
            running = self._running.get(message.id)
            if running is None:
                continue
            if message.ask is not None:
                self._begin_answer(running, message)
                continue
            with self._lock:
                self._running.pop(message.id, None)
            self._end(running, message)
        self._process.wait()
        self._threads[1].join(_OUTPUT_SECONDS)  # a program that it left behind may hold the pipe
        self._fail_all()

    def _begin_answer(self, running: _Running, message: _Message) -> None:  # kept: it may be given up in two ways
        if running.answer is None or running.loop is None:
            self._send({"ask": message.ask, "ended": "no model call is answered here"})
            return
        with suppress(RuntimeError):  # the loop has ended, and the request with it
            asyncio.run_coroutine_threadsafe(self._answer(running, running.answer, message), running.loop)

    async def _answer(self, running: _Running, answer: AnswerCall, message: _Message) -> None:
        try:
            completion = await answer(message.role, message.body)
        except AttemptEndedError as error:
            self._send({"ask": message.ask, "ended": str(error)})
        except Exception as error:  # noqa: BLE001  # it is raised where the request was made
            running.failure = running.failure or error
            self._send({"ask": message.ask, "ended": "the attempt has ended"})
        else:
            self._send({"ask": message.ask, "answer": completion})

    def _end(self, running: _Running, message: _Message) -> None:
        if running.result.cancelled():
            return
        with suppress(asyncio.InvalidStateError):
            if running.failure is not None:
                running.result.set_exception(running.failure)
            elif message.error is None:
                running.result.set_result(message.result)
            elif message.is_refusal:
                running.result.set_exception(BadInputError(message.error))
            else:
                running.result.set_exception(AgentFailedError(f"adapter {self._package.name!r}: {message.error}"))

    def _keep_output(self) -> None:
        assert self._process.stderr is not None
        self._output.extend(self._process.stderr)

    def _fail_all(self) -> None:
        with self._lock:
            left = list(self._running.values())
            self._running.clear()
        output = b"".join(self._output).decode("utf-8", "replace").strip()
        for running in left:
            error = UnreachableError(
                f"adapter {self._package.name!r}: its process ended with status {self._process.returncode}; its last"
                f" output: {output or 'none'}"
            )
            with suppress(asyncio.InvalidStateError):
                if not running.result.cancelled():
                    running.result.set_exception(running.failure or error)


_processes: dict[str, list[ForeignProcess]] = {}
_acquiring = Lock()


def _acquire(package: ForeignPackage) -> ForeignProcess:
    """Return the process with the fewest requests; a new one if all are full."""
    with _acquiring:
        known = _processes.get(package.name, [])
        alive = [one for one in known if one.is_alive]
        for one in known:
            if one not in alive:
                one.close()
        least = min(alive, key=lambda one: one.num_running, default=None)
        if least is None or (least.num_running >= package.max_runs and len(alive) < _MAX_PROCESSES):
            least = ForeignProcess(package)
            alive.append(least)
        _processes[package.name] = alive
        return least


def close_foreign() -> None:
    """End all processes of foreign packages."""
    with _acquiring:
        for process in [one for some in _processes.values() for one in some]:
            process.close()
        _processes.clear()


atexit.register(close_foreign)


def _user_path() -> list[str]:
    """Return the folders that the user's own modules may be in: none of an installation."""
    installed = (sys.prefix, sys.base_prefix)
    folders = [str(Path.cwd()), *filter(None, sys.path)]
    return [one for one in dict.fromkeys(folders) if not one.startswith(installed) and Path(one).is_dir()]
