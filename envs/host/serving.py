"""This file holds how a process of users' code serves: it loads what the worker names, then does what it is asked."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

from envs.host.beginning import Agent, load_agent, raise_file_limit
from envs.host.bench import load_bench
from envs.host.channel import Channel, connect, listen, say
from envs.host.messages import Begin, ToHost
from envs.host.slots import Slots

__all__ = ["serve_agents", "serve_scorers", "serve_slots"]

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
    """Run a loaded target as often as the worker asks, until it hangs up; see Slots."""
    asyncio.run(_serve(end, lambda: Slots(agent.target, agent.settings, agent.recorder, complete)))


def serve_scorers(end: socket.socket) -> None:
    """Be a process of scorers: judge trajectories as often as the worker asks, side by side."""
    raise_file_limit()
    ready, make = load_bench(listen(end, Begin))
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
