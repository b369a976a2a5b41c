"""This file holds agents that run in other processes: a worker's target whose call is a request to a host.

This file holds how a worker's processes of users' code are put together: what each of them knows, and what not.
"""

import asyncio
import sys
from itertools import count
from pathlib import Path
from typing import Protocol

import msgspec

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import Task
from agent_layer.settings import Settings, agent_environment, program_environment
from envs.failures import EndedError, Ending
from envs.hosts.child import agent_values
from envs.hosts.host import Host, HostDiedError
from envs.hosts.launch import Launcher
from envs.hosts.pools import ForkedHosts, SharedHost
from envs.hosts.protocol import Active, Begin, Ended, Ready, Reply, Save, Saved, Start, Started, Stop, Stopping
from envs.progress import current_progress
from tracer.core import Rollout

_MARGIN_SECONDS = 2.0
"""A host that is stopped gets so much longer than the agent in it."""


class Hosts(Protocol):
    """Where a target finds the process that runs an attempt."""

    async def prepare(self) -> Ready:
        """Load the target, and give what is known of it then; raises as ``take`` does."""
        ...

    async def take(self) -> Host:
        """Give a process.

        Raises: BadInputError: none can be started.
        """
        ...

    async def give_back(self, host: Host) -> None:
        """The attempt is over."""
        ...

    async def close(self) -> None:
        """End all processes."""
        ...


class HostTarget:
    """Runs each attempt in a host.

    Args:
        hosts: where.
        close_seconds: for an agent that is stopped to end.
    """

    def __init__(self, hosts: Hosts, close_seconds: float) -> None:
        self.hosts = hosts
        self._grace_seconds = close_seconds + _MARGIN_SECONDS
        self._tokens = count()
        self.failed: asyncio.Future[BadInputError] = asyncio.get_running_loop().create_future()
        """Why no attempt can be run any more; done only then."""

    async def __call__(self, task: Task, rollout: Rollout) -> object:
        """Run an attempt. When none can be run any more it waits, so that the attempt is given back.

        Raises: EndedError: it ended in another way than with a result.
        """
        with current_progress().waiting():
            host = await self._take()
        try:
            ended = await self._run(
                host, rollout, _start_of(task, rollout, f"{rollout.trajectory_id}#{next(self._tokens)}")
            )
        except HostDiedError as error:
            ending = Ending(status="lost", cause="infra", error=_describe(error), is_own=not error.was_ended)
            raise EndedError(ending) from error
        finally:
            await self.hosts.give_back(host)
        rollout.logs.update(ended.logs)
        if ended.status != "completed":
            raise EndedError(Ending(status=ended.status, cause=ended.cause, error=ended.error))
        return ended.result

    async def _take(self) -> Host:
        try:
            return await self.hosts.take()
        except BadInputError as error:
            if not self.failed.done():
                self.failed.set_result(error)
            return await asyncio.get_running_loop().create_future()

    async def _run(self, host: Host, rollout: Rollout, start: Start) -> Ended:
        progress, is_heard, saves = current_progress(), asyncio.Event(), set[asyncio.Task[None]]()

        def hear(message: Started | Active | Stopping | Save) -> None:
            match message:
                case Started():
                    progress.start()
                case Active():
                    progress.record_activity()
                case Stopping():
                    is_heard.set()
                case Save():
                    saves.add(task := asyncio.create_task(_save(host, rollout, message)))
                    task.add_done_callback(saves.discard)

        answer = host.ask(start, hear)
        try:
            return _ended(await asyncio.shield(answer))
        except asyncio.CancelledError as stop:
            why = str(stop.args[0]) if stop.args else "cancel"
            host.tell(Stop(token=start.token, why=why))
            try:
                await asyncio.wait({answer}, timeout=self._grace_seconds)
            finally:
                if not answer.done() and not is_heard.is_set():
                    host.kill("it was ended with an attempt that did not stop when it was told to")  # its loop is stuck
            raise


def _describe(error: HostDiedError) -> str:
    """Whoever shared a process reads how to share none."""
    shared = "; what else ran in it ended, too: 'work --isolate' gives each attempt a process of its own"
    return f"{error}{shared if error.num_beside else ''}"


def _start_of(task: Task, rollout: Rollout, token: str) -> Start:
    return Start(
        token=token,
        task=msgspec.structs.replace(task, grading=None),
        trajectory_id=rollout.trajectory_id,
        rollout_id=rollout.rollout_id,
        attempt=rollout.attempt,
        run=rollout.run,
        base_url=rollout.base_url,
        api_key=rollout.api_key,
        model=rollout.model,
        trace=rollout.trace,
        is_resumable=rollout.keeper is not None,
        kept=rollout.kept,
    )


async def _save(host: Host, rollout: Rollout, asked: Save) -> None:
    """Keep what the agent saved, and tell it whether to go on."""
    try:
        is_pausing = rollout.keeper is not None and await rollout.keeper.keep(asked.state)
    except AgentLayerError as error:  # whatever it is, the agent waits for an answer
        host.tell(Saved(token=asked.token, number=asked.number, error=str(error)))
    else:
        host.tell(Saved(token=asked.token, number=asked.number, is_pausing=is_pausing))


def _ended(answer: Reply) -> Ended:
    assert isinstance(answer, Ended)
    return answer


def make_hosts(settings: Settings, agent: str, *, is_isolated: bool) -> Hosts:
    """Give what runs the agent of this name. It knows no address of a server but its rollouts', and no other key."""
    name = f"agent {agent!r}"
    begin = Begin(target=agent, path=_path(), settings=agent_values(settings))
    kind = "zygote" if is_isolated else "agents"
    launcher = Launcher(name, kind, agent_environment(), begin, settings.start_seconds)
    return ForkedHosts(name, launcher) if is_isolated else SharedHost(name, launcher)


def make_scorers(settings: Settings) -> SharedHost:
    """Give a process of scorers. It reads the store, so it knows all that the worker does."""
    variables = program_environment() | settings.environment()
    begin = Begin(path=_path(), settings={})
    return SharedHost("scorers", Launcher("scorers", "scorers", variables, begin, settings.start_seconds))


def _path() -> list[str]:
    """Where the worker finds modules, and before that the folder in which it was started."""
    return [str(Path.cwd()), *sys.path]
