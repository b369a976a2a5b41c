"""This file holds how a process of users' code begins: it is told where modules lie and how to record, and loads.

This file holds how a process of users' code serves: it loads what the worker names, then does what it is asked.
"""

import asyncio
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec

import tracer
from agent_layer.errors import BadInputError
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.settings import Settings, load_settings
from envs.agents import Target, load_target
from envs.hosts.agent_runner import AgentRunner
from envs.hosts.channel import Channel, connect, listen, say
from envs.hosts.protocol import Begin, Ready, ToHost
from envs.hosts.scorer_runner import load_scorer_runner
from envs.registry import describe_environment
from envs.resume import is_resumable

_FOR_AGENTS = frozenset(
    {
        *("namespace", "run", "redact", "log_roll_seconds", "log_roll_bytes", "log_sync_seconds", "log_quota_bytes"),
        *("log_wait_seconds", "blob_bytes", "media_blob_bytes", "flush_seconds", "close_seconds", "seal_seconds"),
    }
)
_MOST_FILES = 65_536
_LONGEST_ERROR = 4000


def agent_values(settings: Settings) -> dict[str, object]:
    """Give those settings that a process with agents in it may know: how it records, and no address or key."""
    values: dict[str, object] = settings.model_dump(
        mode="json", include=set(_FOR_AGENTS), exclude_unset=True, exclude_none=True
    )
    return values | {"dir": str(settings.dir.absolute())}


@dataclass(frozen=True, kw_only=True)
class Agent:
    """What a process needs to run the agent."""

    target: Target
    settings: Settings
    recorder: Recorder


def load_agent(begin: Begin) -> tuple[Ready, Agent | None]:
    """Begin to record, then load the target: it may have its clients built, or tracing begun, when it is imported."""
    sys.path[:] = begin.path
    settings = load_settings(**begin.settings)
    recorder = open_recorder(settings, ships=False)
    tracer.init(settings)
    try:
        target = load_target(begin.target)
        env, env_version = describe_environment(begin.target)
    except BadInputError as error:
        return Ready(error=str(error)[:_LONGEST_ERROR]), None
    ready = Ready(env=env, env_version=env_version, is_resumable=is_resumable(target))
    return ready, Agent(target=target, settings=settings, recorder=recorder)


def raise_file_limit() -> None:
    """Let this process have as many connections as it may: one host holds thousands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_TO_HOST: msgspec.msgpack.Decoder[ToHost] = msgspec.msgpack.Decoder(ToHost)


class _Servant(Protocol):
    """Does what it is asked."""

    def speak(self, channel: Channel[ToHost]) -> None:
        """Answer there."""
        ...

    def hear(self, message: ToHost) -> None:
        """Do that."""
        ...

    async def tell_activity(self) -> None:
        """Tell what nobody asked for, until cancelled."""
        ...


def serve_agents(end: socket.socket) -> None:
    """Be a host: run the target that the worker names, as often as it asks, side by side."""
    raise_file_limit()
    ready, agent = load_agent(listen(end, Begin))
    say(end, ready)
    if agent is not None:
        serve_slots(end, agent)
        agent.recorder.close()


def serve_slots(end: socket.socket, agent: Agent, complete: Callable[[], None] | None = None) -> None:
    """Run a loaded target as often as the worker asks, until it hangs up; see AgentRunner."""
    asyncio.run(_serve(end, lambda: AgentRunner(agent.target, agent.settings, agent.recorder, complete)))


def serve_scorers(end: socket.socket) -> None:
    """Be a process of scorers: judge trajectories as often as the worker asks, side by side."""
    raise_file_limit()
    ready, make = load_scorer_runner(listen(end, Begin))
    say(end, ready)
    if make is not None:
        asyncio.run(_serve(end, make))


async def _serve(end: socket.socket, make: Callable[[], _Servant]) -> None:
    servant = make()
    channel = await connect(end, _TO_HOST, servant.hear)
    servant.speak(channel)
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(servant.tell_activity())
        await channel.closed
        telling.cancel()
