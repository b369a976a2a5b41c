"""This file holds the zygote: it loads the agent once, and forks a process for each attempt.

It has one thread, no event loop and no connection but that to the worker. Above each attempt's process stands a
keeper,
forked from here too: when the process has ended, the keeper kills whatever it left and removes its directory for
temporary files. All keepers hear of the zygote's end: each has a lifeline that the zygote alone holds.

This file holds what a zygote does before it forks, so that each forked process has less to do.
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

from agent_layer.infra.processes import (
    ChildExitPipe,
    become_subreaper,
    die_with_parent,
    exit_like,
    keep,
    kill_descendants,
    list_children,
)
from agent_layer.settings import set_temporary_directory
from envs.hosts.child import Agent, load_agent, serve_slots
from envs.hosts.protocol import LONGEST_PACKET, Begin, Died, Fork, Kill

_IMPORTED_LATE: Final = {
    "anthropic": "anthropic.resources",
    "anyio": "anyio._backends._asyncio",
    "openai": "openai.resources",
}
"""What clients import at their first call, by a module that shows that they are in use. It takes OpenAI's 0.3 s."""


def warm_up() -> None:
    """Import what the agent's clients would import in every forked process, and leave memory so that it is shared."""
    for client, late in _IMPORTED_LATE.items():
        if client in sys.modules:
            with suppress(ImportError):  # another version of it
                import_module(late)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page that it looks at


_LONGEST_END_MS = 2000
_SEEDED_BY_HAND = {"numpy": "random", "torch": "random"}
"""Modules whose generators give every forked process the same numbers, and where their ``seed`` is."""

_REQUESTS: msgspec.msgpack.Decoder[Fork | Kill] = msgspec.msgpack.Decoder(Fork | Kill)
_log = logging.getLogger(__name__)


def serve_fork_server(end: socket.socket) -> None:
    """Load the target that the worker names, then fork hosts until the worker hangs up."""
    begin = msgspec.msgpack.decode(end.recv(LONGEST_PACKET), type=Begin)
    ready, agent = load_agent(begin)
    end.send(msgspec.msgpack.encode(ready))
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
    """Forks hosts for single attempts, and tells of their ends."""

    def __init__(self, end: socket.socket, agent: Agent) -> None:
        self._end = end
        self._agent = agent
        self._keepers: dict[int, tuple[str, Path]] = {}
        """By process id: token, and directory for temporary files."""
        self._lifelines: dict[str, int] = {}
        """By token; the keeper ends all when it is closed."""
        self._own = frozenset(list_children(os.getpid()))
        """What the agent's module started when it was imported stays."""
        become_subreaper()

    def serve(self) -> None:
        """Do what the worker asks until it hangs up; then end all."""
        bell, poll = ChildExitPipe(), select.poll()
        poll.register(bell.reader, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        is_wanted = True
        while is_wanted:
            ready = {descriptor for descriptor, _ in poll.poll()}
            for pid, status in bell.ended():
                self._bury(pid, status)
            if self._end.fileno() in ready:
                is_wanted = self._answer()
        poll.unregister(self._end)
        for lifeline in self._lifelines.values():
            os.close(lifeline)
        while self._keepers and poll.poll(_LONGEST_END_MS):
            for pid, _ in bell.ended():
                self._keepers.pop(pid, None)

    def _answer(self) -> bool:
        """Do one thing; False: the worker has hung up."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._end, LONGEST_PACKET, 1)
        except ConnectionError:
            return False
        if not packet:
            return False
        match _REQUESTS.decode(packet):
            case Fork(token=token):
                self._begin(token, descriptors)
            case Kill(token=token):
                if (lifeline := self._lifelines.pop(token, None)) is not None:
                    os.close(lifeline)
        return True

    def _begin(self, token: str, descriptors: list[int]) -> None:
        """Fork a host; where there is no room for one, that is its end and nobody else's."""
        try:
            with socket.socket(fileno=descriptors[0]) as end:
                self._fork(token, end)
        except IndexError:  # the kernel dropped what came along
            self._refuse(token, os.strerror(errno.EMFILE))
        except OSError as error:
            self._refuse(token, str(error))

    def _refuse(self, token: str, why: str) -> None:
        self._tell(Died(token=token, error=f"it could not be forked: {why}; raise what the machine allows"))

    def _fork(self, token: str, end: socket.socket) -> None:
        """Raises: OSError: there is no room for another process; nothing is left of it."""
        with ExitStack() as undo:
            directory = Path(tempfile.mkdtemp(prefix="agent-layer-"))
            undo.callback(directory.rmdir)
            reader, lifeline = os.pipe()
            undo.callback(os.close, lifeline)
            self._lifelines[token] = lifeline
            undo.callback(self._lifelines.pop, token)
            try:
                if (pid := os.fork()) == 0:
                    _never_return(lambda: self._be_keeper(end, reader, directory))
            finally:
                os.close(reader)
            undo.pop_all()
        self._keepers[pid] = token, directory

    def _bury(self, pid: int, status: int) -> None:
        """Tell of the end of an attempt's process. A keeper that was killed could not clear up."""
        if (found := self._keepers.pop(pid, None)) is None:
            return
        token, directory = found
        if (lifeline := self._lifelines.pop(token, None)) is not None:
            os.close(lifeline)
        if directory.exists():
            kill_descendants({*self._own, *self._keepers})
            shutil.rmtree(directory, ignore_errors=True)
        self._tell(Died(token=token, status=status))

    def _tell(self, died: Died) -> None:
        with suppress(ConnectionError):
            self._end.send(msgspec.msgpack.encode(died))

    def _be_keeper(self, end: socket.socket, reader: int, directory: Path) -> None:
        become_subreaper()
        self._end.close()
        for lifeline in self._lifelines.values():
            os.close(lifeline)
        keeper = os.getpid()
        if (child := os.fork()) == 0:
            os.close(reader)
            _never_return(lambda: self._be_host(keeper, end, directory))
        end.close()
        status = keep(child, reader, 0.0)
        shutil.rmtree(directory, ignore_errors=True)
        exit_like(status)

    def _be_host(self, keeper: int, end: socket.socket, directory: Path) -> None:
        die_with_parent(keeper)
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        set_temporary_directory(directory)
        for name, place in _SEEDED_BY_HAND.items():
            if (module := sys.modules.get(name)) is not None:
                getattr(module, place).seed()
        serve_slots(end, self._agent, self._agent.recorder.close)


def _never_return(live: Callable[[], None]) -> NoReturn:
    """Be another process from here on; what the zygote has on its stack and wants done at its exit is not ours."""
    status = 1
    try:
        live()
        status = 0
    except BaseException:  # noqa: BLE001  # whatever it is, it ends this process
        _log.exception("a forked process failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
