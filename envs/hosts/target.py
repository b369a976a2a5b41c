"""Targets that run in host processes: a call is a request to a host."""

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
from envs.hosts.host_client import Host, HostDiedError
from envs.hosts.host_process import Launcher
from envs.hosts.mains import agent_values
from envs.hosts.pools import ForkedHosts, SharedHost
from envs.hosts.protocol import Active, Begin, Ended, Ready, Save, Saved, Start, Started, StartedBox, Stop, Stopping
from envs.progress import current_progress
from envs.sandbox import AttemptSandbox
from tracer.core import Rollout

_MARGIN_SECONDS = 2.0
"""A host gets this much longer to stop than the agent in it."""


class Hosts(Protocol):
    """Processes for attempts."""

    async def prepare(self) -> Ready:
        """Load the target, and return what is known of it; raises as ``acquire_host`` does."""
        ...

    async def acquire_host(self) -> Host:
        """Return a process for one attempt.

        Raises: BadInputError: none can be started.
        """
        ...

    async def release_host(self, host: Host) -> None:
        """Return the process of an attempt that has ended."""
        ...

    async def close(self) -> None:
        """End all processes."""
        ...


class HostTarget:
    """Runs each attempt in a host.

    Args:
        hosts: source of processes.
        close_seconds: time for a stopped agent to end.
    """

    def __init__(self, hosts: Hosts, close_seconds: float) -> None:
        self.hosts = hosts
        self._grace_seconds = close_seconds + _MARGIN_SECONDS
        self._tokens = count()
        self.failed: asyncio.Future[BadInputError] = asyncio.get_running_loop().create_future()
        """Why no further attempt can run; done only then."""

    async def __call__(self, task: Task, rollout: Rollout) -> object:
        """Run an attempt. If no process can be started, wait until the worker returns the attempt to the queue.

        Raises: EndedError: the agent ended without a result.
        """
        with current_progress().waiting():
            try:
                host = await self.hosts.acquire_host()
            except BadInputError as error:
                if not self.failed.done():
                    self.failed.set_result(error)
                host = await asyncio.get_running_loop().create_future()
        try:
            ended = await self._run(
                host, rollout, _make_start(task, rollout, f"{rollout.trajectory_id}#{next(self._tokens)}")
            )
        except HostDiedError as error:
            ending = Ending(status="lost", cause="infra", error=_describe(error), is_own=not error.was_ended)
            raise EndedError(ending) from error
        finally:
            await self.hosts.release_host(host)
        rollout.logs.update(ended.logs)
        if ended.status != "completed":
            ending = Ending(
                status=ended.status,
                cause=ended.cause,
                error=ended.error,
                traceback=ended.traceback,
                is_self_inflicted=ended.is_self_inflicted,
            )
            raise EndedError(ending)
        return ended.result

    async def _run(self, host: Host, rollout: Rollout, start: Start) -> Ended:
        progress, is_stopping, saves = current_progress(), asyncio.Event(), set[asyncio.Task[None]]()

        def on_progress(message: Started | Active | Stopping | Save) -> None:
            match message:
                case Started():
                    progress.mark_prepared()
                case Active():
                    progress.record_activity()
                case Stopping():
                    is_stopping.set()
                case Save():
                    saves.add(task := asyncio.create_task(_save(host, rollout, message)))
                    task.add_done_callback(saves.discard)

        answer = host.ask(start, on_progress)
        try:
            ended = await asyncio.shield(answer)
        except asyncio.CancelledError as stop:
            why = str(stop.args[0]) if stop.args else "cancel"
            host.send(Stop(token=start.token, why=why))
            try:
                await asyncio.wait({answer}, timeout=self._grace_seconds)
            finally:
                if not answer.done() and not is_stopping.is_set():
                    host.kill("it was ended with an attempt that did not stop in time")  # its event loop hangs
            raise
        assert isinstance(ended, Ended)
        return ended


def _describe(error: HostDiedError) -> str:
    """Add how to isolate attempts, where the process was shared."""
    shared = "; other attempts in it ended, too: 'work --isolate' gives each attempt a process of its own"
    return f"{error}{shared if error.num_beside else ''}"


def _make_start(task: Task, rollout: Rollout, token: str) -> Start:
    box = rollout.box
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
        sandbox=StartedBox(facts=box.facts, address=box.address) if isinstance(box, AttemptSandbox) else None,
    )


async def _save(host: Host, rollout: Rollout, save: Save) -> None:
    """Store what the agent saved, and answer whether it goes on."""
    try:
        is_pausing = rollout.keeper is not None and await rollout.keeper.keep(save.state)
    except AgentLayerError as error:  # the agent waits for an answer in any case
        host.send(Saved(token=save.token, number=save.number, error=str(error)))
    else:
        host.send(Saved(token=save.token, number=save.number, is_pausing=is_pausing))


def make_hosts(settings: Settings, agent: str, *, is_isolated: bool) -> Hosts:
    """Return the processes for the agent of this name; they know no address and no key but their rollouts'."""
    name = f"agent {agent!r}"
    begin = Begin(target=agent, path=_path(), settings=agent_values(settings))
    kind = "fork-server" if is_isolated else "agents"
    launcher = Launcher(name, kind, agent_environment(), begin, settings.start_seconds)
    return ForkedHosts(name, launcher) if is_isolated else SharedHost(name, launcher)


def make_scorers(settings: Settings) -> SharedHost:
    """Return the scorer process; it reads the store, so it knows every setting of the worker."""
    variables = program_environment() | settings.environment()
    begin = Begin(path=_path(), settings={})
    return SharedHost("scorers", Launcher("scorers", "scorers", variables, begin, settings.start_seconds))


def _path() -> list[str]:
    """Return the worker's module path, behind the folder in which it was started."""
    return [str(Path.cwd()), *sys.path]
