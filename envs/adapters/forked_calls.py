"""Calls of trusted code with values that a policy chose, each in a process of its own, forked from a warm one.

    scorer's thread ──request, value──▶ warm process: prepare(request) ──fork──▶ keeper ──fork──▶ prepared(value)
          ▲                                                                        └── result, or how it ended ──┐
          └──────────────────────────────────────────────────────────────────────────────────────────────────────┘

A package's scorer may take seconds to import, and an answer may make it loop, crash, or use up memory. The warm process
imports once and remembers what it prepared. A call can disturb no other, and ends at its limits.

CPU time and memory of a call are the policy's fault, so its end there is a result. Wall time is the machine's.
"""

import atexit
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NoReturn, TypeAlias, cast

import msgspec

from agent_layer.errors import AgentFailedError
from agent_layer.infra import die_with_parent
from agent_layer.schema import JsonObject
from envs.failures import describe_error
from envs.plug_ins import import_object

Prepare: TypeAlias = Callable[[JsonObject], Callable[[object], object]]
"""Takes a request, which is trusted, and returns the call, which takes the policy's value and returns a JSON value."""

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from envs.adapters.forked_calls import serve; serve(int(sys.argv[2]), sys.argv[3])"
)
_VARIABLES: Final = {"PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
"""No secrets, no threads, which no fork inherits, and the same order of sets everywhere."""
_MAX_REQUEST_BYTES: Final = 1 << 16
_MAX_MEMORY_BYTES: Final = 4 << 30
"""Address space of a call, the warm process's included."""
_CHUNK_BYTES: Final = 1 << 20
_NUM_PREPARED: Final = 64
"""Prepared requests that the warm process remembers."""
_END_SECONDS: Final = 5.0


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a call returned, or how the value ended it."""

    value: object = None
    error: str | None = None
    """Why there is no value: the call raised, or reached a limit; None: there is one."""
    broken: str | None = None
    """Why the call was never made, or not to its end, which is no fault of the value; never returned."""


def call_forked(
    prepare: str, request: JsonObject, value: object, *, cpu_seconds: int = 10, seconds: int = 120
) -> CallResult:
    """Return what ``prepare(request)(value)`` returns in a fresh process. Blocks: a plain scorer has its own thread.

    Args:
        prepare: ``module:function`` of a ``Prepare``.
        request: what its call is prepared for, at most 64 KiB as JSON.
        value: the policy's; any JSON value.
        cpu_seconds: limit of the call's CPU time.
        seconds: limit of everything, the first import included.

    Raises: AgentFailedError: the request could not be prepared, or the machine kept the call from its end.
    """
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(seconds)
        with theirs:
            _send_request(prepare, msgspec.json.encode((request, cpu_seconds, seconds)), theirs)
        try:
            ours.sendall(msgspec.json.encode(value))
            ours.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: ours.recv(_CHUNK_BYTES), b""))
        except OSError as error:
            raise AgentFailedError(f"call of {prepare}: no answer, {error}; the scorer is asked again") from error
    try:
        result = msgspec.json.decode(answer, type=CallResult)
    except msgspec.DecodeError as error:
        raise AgentFailedError(f"call of {prepare}: it ended without an answer; the scorer is asked again") from error
    if result.broken is not None:
        raise AgentFailedError(f"call of {prepare}: {result.broken}")
    return result


class _WarmProcess:
    """A process that has imported one ``Prepare``; it ends when this process does, which closes its socket."""

    def __init__(self, prepare: str) -> None:
        self.end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            path = msgspec.json.encode(sys.path).decode()
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, path, str(theirs.fileno()), prepare],
                env=_VARIABLES,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def close(self) -> None:
        """End it."""
        self.end.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_warm: Final[dict[tuple[int, str], _WarmProcess]] = {}
"""Warm process by own process id, as a fork may not use its parent's, and ``Prepare``."""
_changing: Final = threading.Lock()


@atexit.register
def _close_all() -> None:  # pyright: ignore[reportUnusedFunction]  # atexit uses it
    for (pid, _), process in list(_warm.items()):
        if pid == os.getpid():
            process.close()


def _send_request(prepare: str, request: bytes, answer_to: socket.socket) -> None:
    key = (os.getpid(), prepare)
    with _changing:
        for is_last in (False, True):
            process = _warm.get(key) or _warm.setdefault(key, _WarmProcess(prepare))
            try:
                socket.send_fds(process.end, [request], [answer_to.fileno()])
            except OSError as error:  # it was killed
                _warm.pop(key).close()
                if is_last:
                    raise AgentFailedError(f"call of {prepare}: its process ends at once, {error}") from error
            else:
                return


def serve(descriptor: int, prepare: str) -> None:
    """Fork a keeper for each request, in the warm process, until the other end of the socket closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave nothing to wait for

    @lru_cache(_NUM_PREPARED)
    def find_call(request: bytes) -> Callable[[object], object]:
        return cast("Prepare", import_object(prepare))(msgspec.json.decode(request, type=JsonObject))

    with socket.socket(fileno=descriptor) as end:
        while True:
            packet, descriptors, _, _ = socket.recv_fds(end, _MAX_REQUEST_BYTES, 1)
            if not packet:
                return
            with socket.socket(fileno=descriptors[0]) as answer_to:
                request, cpu_seconds, seconds = msgspec.json.decode(packet, type=tuple[msgspec.Raw, int, int])
                try:
                    call = find_call(bytes(request))
                    if os.fork() == 0:
                        end.close()
                        _keep(call, answer_to, cpu_seconds, seconds)
                except Exception as error:  # noqa: BLE001  # a package may raise anything, and other requests go on
                    _read_all(answer_to.fileno())  # to close a socket with something unread would lose the answer
                    answer_to.sendall(msgspec.json.encode(CallResult(broken=describe_error(error))))


def _keep(call: Callable[[object], object], answer_to: socket.socket, cpu_seconds: int, seconds: int) -> NoReturn:
    """Make the call in a child, and answer what it returned or how it ended."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.alarm(seconds)  # the scorer waits no longer; the child goes with this process
        value: object = msgspec.json.decode(_read_all(answer_to.fileno()))
        reader, writer = os.pipe()
        own_pid = os.getpid()
        if (pid := os.fork()) == 0:
            answer_to.close()
            _make_call(call, value, writer, own_pid, cpu_seconds)
        os.close(writer)
        found = _read_all(reader)
        _, status, used = os.wait4(pid, 0)
        result = _read_result(found, status, used.ru_utime + used.ru_stime, cpu_seconds)
        answer_to.sendall(msgspec.json.encode(result))
    finally:
        os._exit(0)


def _make_call(call: Callable[[object], object], value: object, writer: int, keeper: int, cpu_seconds: int) -> NoReturn:
    try:
        die_with_parent(keeper)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))  # SIGXCPU, then SIGKILL
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            result = CallResult(value=call(value))
            text = msgspec.json.encode(result)
        except BaseException as error:  # noqa: BLE001  # a package may raise anything, such as exit()
            text = msgspec.json.encode(CallResult(error=f"it raised {describe_error(error)}"))
        with os.fdopen(writer, "wb") as out:
            out.write(text)
    finally:
        os._exit(0)


def _read_result(found: bytes, status: int, cpu_used: float, cpu_seconds: int) -> CallResult:
    try:
        return msgspec.json.decode(found, type=CallResult)
    except msgspec.DecodeError:
        pass
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if ended_by == signal.SIGXCPU or cpu_used > cpu_seconds:
        return CallResult(error=f"it took more than {cpu_seconds} s of CPU time")
    if ended_by == signal.SIGKILL:
        return CallResult(broken="the machine killed it; see to its memory")
    return CallResult(error="it ended its process")


def _read_all(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, _CHUNK_BYTES), b""))
