"""Fork server: loads the agent once, and forks a process for each attempt.

It has one thread, no event loop and no connection but that to the worker. Above each attempt's process is a reaper,
forked from here too: when the process has ended, the reaper kills its descendants and removes its directory for
temporary files. Every reaper notices the end of the fork server, which alone has the other end of its lifeline.
"""

import errno
import gc
import logging
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from agent_layer.infra import (
    ChildExitPipe,
    become_subreaper,
    die_with_parent,
    exit_like,
    kill_descendants,
    list_children,
    reap,
)
from agent_layer.settings import set_temporary_directory
from envs.channel import ChannelClosedError
from envs.hosts.mains import Agent, load_agent, serve_agent
from envs.hosts.protocol import MAX_PACKET_LENGTH, Begin, Died, Fork, Kill

_IMPORTED_LATE: Final = {
    "anthropic": "anthropic.resources",
    "anyio": "anyio._backends._asyncio",
    "openai": "openai.resources",
}
"""Modules that clients import at their first call, by the module that shows their use. OpenAI's takes 0.3 s."""
_MAX_END_MS = 2000
_SEEDED_BY_HAND = {"numpy": "random", "torch": "random"}
"""Modules whose random generators would repeat in every forked process, and the attribute that has ``seed``."""


def warm_up() -> None:
    """Import what clients import at their first call, and keep the memory shared between forked processes."""
    for client, late in _IMPORTED_LATE.items():
        if client in sys.modules:
            with suppress(ImportError):  # another version of it
                import_module(late)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page that it reads


_REQUESTS: msgspec.msgpack.Decoder[Fork | Kill] = msgspec.msgpack.Decoder(Fork | Kill)
_log = logging.getLogger(__name__)


def serve_fork_server(end: socket.socket) -> None:
    """Load the worker's target, then fork hosts until the worker closes the connection."""
    if not (packet := end.recv(MAX_PACKET_LENGTH)):
        raise ChannelClosedError
    begin = msgspec.msgpack.decode(packet, type=Begin)
    ready, agent = load_agent(begin)
    try:
        end.send(msgspec.msgpack.encode(ready))
    except ConnectionError as error:
        raise ChannelClosedError from error
    if agent is None:
        return
    if (num_threads := threading.active_count()) > 1:
        _log.warning(
            "agent %s: its module started %d threads when it was imported; attempts of --isolate do not have them",
            begin.target,
            num_threads - 1,
        )
    warm_up()
    _ForkServer(end, agent).serve()


class _ForkServer:
    """Forks a host per attempt, and reports their ends."""

    def __init__(self, end: socket.socket, agent: Agent) -> None:
        self._end = end
        self._agent = agent
        self._reapers: dict[int, tuple[str, Path]] = {}
        """By process id of the reaper: token, and directory for temporary files."""
        self._lifelines: dict[str, int] = {}
        """By token: pipe ends that only this process has; when one closes, its reaper kills its family."""
        self._own = frozenset(list_children(os.getpid()))
        """Processes that the agent's module started when it was imported; they stay."""
        become_subreaper()

    def serve(self) -> None:
        """Serve requests until the worker closes the connection; then end every process."""
        bell, poll = ChildExitPipe(), select.poll()
        poll.register(bell.reader, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        is_connected = True
        while is_connected:
            ready = {descriptor for descriptor, _ in poll.poll()}
            for pid, status in bell.ended():
                self._on_exit(pid, status)
            if self._end.fileno() in ready:
                is_connected = self._serve_one()
        poll.unregister(self._end)
        for lifeline in self._lifelines.values():
            os.close(lifeline)
        while self._reapers and poll.poll(_MAX_END_MS):
            for pid, _ in bell.ended():
                self._reapers.pop(pid, None)

    def _serve_one(self) -> bool:
        """Serve one request; False: the worker has closed the connection."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._end, MAX_PACKET_LENGTH, 1)
        except ConnectionError:
            return False
        if not packet:
            return False
        match _REQUESTS.decode(packet):
            case Fork(token=token):
                try:  # if the machine has no room for it, only this host fails
                    with socket.socket(fileno=descriptors[0]) as end:
                        self._fork(token, end)
                except IndexError:  # the kernel dropped the socket
                    self._refuse(token, os.strerror(errno.EMFILE))
                except OSError as error:
                    self._refuse(token, str(error))
            case Kill(token=token):
                if (lifeline := self._lifelines.pop(token, None)) is not None:
                    os.close(lifeline)
        return True

    def _refuse(self, token: str, why: str) -> None:
        self._report(Died(token=token, error=f"it could not be forked: {why}; raise the machine's limits"))

    def _fork(self, token: str, end: socket.socket) -> None:
        """Fork a reaper with its host.

        Raises: OSError: the machine has no room for another process; nothing is left behind.
        """
        with ExitStack() as undo:
            directory = Path(tempfile.mkdtemp(prefix="agent-layer-"))
            undo.callback(directory.rmdir)
            reader, lifeline = os.pipe()
            undo.callback(os.close, lifeline)
            self._lifelines[token] = lifeline
            undo.callback(self._lifelines.pop, token)
            try:
                if (pid := os.fork()) == 0:
                    _run_as_child(lambda: self._run_reaper(end, reader, directory))
            finally:
                os.close(reader)
            undo.pop_all()
        self._reapers[pid] = token, directory

    def _on_exit(self, pid: int, status: int) -> None:
        """Report the end of a host, and clean up after a reaper that was killed."""
        if (found := self._reapers.pop(pid, None)) is None:
            return
        token, directory = found
        if (lifeline := self._lifelines.pop(token, None)) is not None:
            os.close(lifeline)
        if directory.exists():
            kill_descendants({*self._own, *self._reapers})
            shutil.rmtree(directory, ignore_errors=True)
        self._report(Died(token=token, status=status))

    def _report(self, died: Died) -> None:
        with suppress(ConnectionError):
            self._end.send(msgspec.msgpack.encode(died))

    def _run_reaper(self, end: socket.socket, reader: int, directory: Path) -> None:
        become_subreaper()
        self._end.close()
        for lifeline in self._lifelines.values():
            os.close(lifeline)
        own_pid = os.getpid()
        if (child := os.fork()) == 0:
            os.close(reader)
            _run_as_child(lambda: self._run_host(own_pid, end, directory))
        end.close()
        status = reap(child, reader, 0.0)
        shutil.rmtree(directory, ignore_errors=True)
        exit_like(status)

    def _run_host(self, reaper: int, end: socket.socket, directory: Path) -> None:
        die_with_parent(reaper)
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        set_temporary_directory(directory)
        for name, place in _SEEDED_BY_HAND.items():
            if (module := sys.modules.get(name)) is not None:
                getattr(module, place).seed()
        serve_agent(end, self._agent, self._agent.recorder.close)


def _run_as_child(main: Callable[[], None]) -> NoReturn:
    """Run the main function of a forked process and exit, without the exit handlers of the fork server."""
    status = 1
    try:
        main()
        status = 0
    except BaseException:  # noqa: BLE001  # any error ends this process
        _log.exception("a forked process failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
