"""The foreign side of an adapter: answers requests, one JSON object a line, in the interpreter of a foreign package.

    ours ──▶ {"id", "op", …}                            a request; {"id", "op": "cancel"} gives it up
    ours ◀── {"id", "ask", "role", "body"}              a model call that it needs: a chat-completions request
    ours ──▶ {"ask", "answer"} or {"ask", "ended"}      the chat completion, or why there will be none any more
    ours ◀── {"id", "result"} or {"id", "error", "is_refusal"}

It imports nothing but the standard library. What foreign code prints goes to stderr. The end of stdin ends it.
"""

import asyncio
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Generator
from importlib import metadata
from typing import Any, TypeAlias

Request: TypeAlias = dict[str, Any]
Ask: TypeAlias = Callable[[str, Request], Awaitable[Request]]
"""Takes a role, ``policy`` or ``judge``, and a request; returns the completion.

Raises: AttemptEnded: there will be none any more.
"""
Handler: TypeAlias = Callable[[Request, Ask], Awaitable[object]]

_MAX_LINE = 1 << 28
_MAX_TRACE = 3000


class RefusalError(Exception):  # it is an answer
    """The package has it, and it cannot be carried; the text names it."""


class AttemptEnded(Exception):  # noqa: N818  # it is an answer
    """The attempt has ended, so no model call is answered any more."""


def serve(handlers: dict[str, Handler], package: str) -> None:
    """Answer requests until stdin ends.

    Args:
        handlers: by operation.
        package: as ``describe_version`` describes it.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_Server(handlers, out, package).run())


def describe_version(package: str, tested: str) -> str:
    """Return name and version of a package; what to install, if the adapter was tested with another.

    Without the package it ends the program.
    """
    try:
        found = f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        sys.exit(f"no {package} there; install {package}=={tested} into {sys.prefix}")
    if found == f"{package} {tested}":
        return found
    return f"{found}; this adapter was tested with {tested}, install {package}=={tested} into {sys.prefix} if it fails"


@contextlib.contextmanager
def explain_missing_names(package: str) -> Generator[None]:
    """Context manager that ends the program where a name of a package is missing, and says which version it has."""
    try:
        yield
    except (ImportError, AttributeError) as error:
        sys.exit(f"{error} ({package})")


class _Server:
    def __init__(self, handlers: dict[str, Handler], out: int, package: str) -> None:
        self._package = package
        self._handlers = handlers
        self._out = out
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._asks: dict[int, asyncio.Future[Request]] = {}
        self._num_asks = 0

    async def run(self) -> None:
        reader = asyncio.StreamReader(limit=_MAX_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            self._receive(json.loads(line))
        os._exit(0)  # threads and servers of foreign code would hold the process

    def _receive(self, message: Request) -> None:
        if "ask" in message:
            waiting = self._asks.pop(message["ask"], None)
            if waiting is not None and not waiting.done():
                if "ended" in message:
                    waiting.set_exception(AttemptEnded(message["ended"]))
                else:
                    waiting.set_result(message["answer"])
        elif message["op"] == "cancel":
            if task := self._tasks.get(message["id"]):
                task.cancel()
        else:
            task = asyncio.create_task(self._handle(message))
            self._tasks[message["id"]] = task
            task.add_done_callback(lambda _: self._tasks.pop(message["id"], None))

    async def _handle(self, message: Request) -> None:
        async def ask(role: str, body: Request) -> Request:
            self._num_asks += 1
            number = self._num_asks
            waiting = self._asks[number] = asyncio.get_running_loop().create_future()
            self._send({"id": message["id"], "ask": number, "role": role, "body": body})
            return await waiting

        try:
            answer = {"result": await self._handlers[message["op"]](message, ask)}
        except RefusalError as error:
            answer = {"error": str(error), "is_refusal": True}
        except asyncio.CancelledError:
            answer = {"error": "cancelled", "is_refusal": False}
        except (Exception, SystemExit) as error:  # foreign code may raise anything
            trace = traceback.format_exc()[-_MAX_TRACE:]
            sys.stderr.write(trace)
            answer = {"error": f"{type(error).__name__}: {error} ({self._package})", "is_refusal": False}
        try:
            self._send({"id": message["id"], **answer})
        except ValueError as error:  # such as a reward that is not a number
            self._send({"id": message["id"], "error": f"{error}, in its answer", "is_refusal": False})

    def _send(self, message: Request) -> None:
        line = json.dumps(message, default=repr, allow_nan=False).encode() + b"\n"
        while line:
            line = line[os.write(self._out, line) :]


@contextlib.contextmanager
def readable_errors(subject: str) -> Generator[None]:
    """Context manager that refuses with the text of any error, and of what caused it."""
    try:
        yield
    except RefusalError:
        raise
    except (Exception, SystemExit) as error:
        cause = error.__cause__ or error
        what = f"; install it into {sys.prefix}" if isinstance(cause, ModuleNotFoundError) else ""
        raise RefusalError(f"{subject}: {type(cause).__name__}: {cause}{what}") from error
