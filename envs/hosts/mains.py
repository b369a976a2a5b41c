"""Main functions of host processes: load what the worker names, then serve its requests."""

import asyncio
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

import tracer
from agent_layer.errors import BadInputError
from agent_layer.infra import raise_file_limit
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.settings import Settings, load_settings
from envs.agents import Target, load_target
from envs.channel import Channel, connect, receive_blocking, send_blocking
from envs.hosts.agent_runner import AgentRunner
from envs.hosts.protocol import Begin, Ready, ToHost
from envs.hosts.scorer_runner import load_scorer_runner
from envs.registry import declared_artifacts, declared_sandbox, describe_environment
from envs.resume import is_resumable

_FOR_AGENTS = frozenset(
    {
        *("namespace", "run", "redact", "log_roll_seconds", "log_roll_bytes", "log_sync_seconds", "log_quota_bytes"),
        *("log_wait_seconds", "blob_bytes", "media_blob_bytes", "flush_seconds", "close_seconds", "seal_seconds"),
    }
)
_MAX_ERROR_LENGTH = 4000


def agent_values(settings: Settings) -> dict[str, object]:
    """Return the settings that an agent's process may know: how it records, and no address or key."""
    values: dict[str, object] = settings.model_dump(
        mode="json", include=set(_FOR_AGENTS), exclude_unset=True, exclude_none=True
    )
    return values | {"dir": str(settings.dir.absolute())}


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A loaded agent, with what a process needs to run it."""

    target: Target
    settings: Settings
    recorder: Recorder


def load_agent(begin: Begin) -> tuple[Ready, Agent | None]:
    """Start recording, then load the target, because its import may already build clients or start tracing."""
    sys.path[:] = begin.path
    settings = load_settings(**begin.settings)
    recorder = open_recorder(settings, ships=False)
    tracer.init(settings)
    try:
        target = load_target(begin.target)
        env, env_version = describe_environment(begin.target)
        sandbox, artifacts = declared_sandbox(begin.target), declared_artifacts(begin.target)
    except BadInputError as error:
        return Ready(error=str(error)[:_MAX_ERROR_LENGTH]), None
    ready = Ready(
        env=env,
        env_version=env_version,
        is_resumable=is_resumable(target),
        sandbox=sandbox,
        artifacts=artifacts,
    )
    return ready, Agent(target=target, settings=settings, recorder=recorder)


_TO_HOST: msgspec.msgpack.Decoder[ToHost] = msgspec.msgpack.Decoder(ToHost)


class _Runner(Protocol):
    """Carries out the worker's requests."""

    def attach(self, channel: Channel[ToHost]) -> None:
        """Answer over this channel."""
        ...

    def on_message(self, message: ToHost) -> None:
        """Carry out a request."""
        ...

    async def report_activity(self) -> None:
        """Send reports that answer no request, until cancelled."""
        ...


def serve_agents(end: socket.socket) -> None:
    """Serve as a host: run the worker's target once per request, side by side."""
    raise_file_limit()
    ready, agent = load_agent(receive_blocking(end, Begin))
    send_blocking(end, ready)
    if agent is not None:
        serve_agent(end, agent)
        agent.recorder.close()


def serve_agent(end: socket.socket, agent: Agent, complete: Callable[[], None] | None = None) -> None:
    """Run a loaded target once per request until the worker closes the channel; see AgentRunner."""
    asyncio.run(_serve(end, lambda: AgentRunner(agent.target, agent.settings, agent.recorder, complete)))


def serve_scorers(end: socket.socket) -> None:
    """Serve as a scorer process: score one trajectory per request, side by side."""
    raise_file_limit()
    ready, make = load_scorer_runner(receive_blocking(end, Begin))
    send_blocking(end, ready)
    if make is not None:
        asyncio.run(_serve(end, make))


async def _serve(end: socket.socket, make: Callable[[], _Runner]) -> None:
    runner = make()
    channel = await connect(end, _TO_HOST, runner.on_message)
    runner.attach(channel)
    async with asyncio.TaskGroup() as group:
        reporting = group.create_task(runner.report_activity())
        await channel.closed
        reporting.cancel()
