"""This file holds the bench of a process of scorers: trajectories are judged side by side, each read from the store."""

import asyncio
import sys
from collections.abc import Callable

from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.settings import load_settings
from agent_layer.store import Store, open_store
from envs.hosts.channel import Channel
from envs.hosts.protocol import Begin, Check, Checked, Judge, Judged, Ready, Started, ToHost
from envs.scorers import declared_rewards, judge, load_scorer, null_rewards


def load_scorer_runner(begin: Begin) -> tuple[Ready, Callable[[], "ScorerRunner"] | None]:
    """Open the store, and be ready to judge what is in it."""
    sys.path[:] = begin.path
    try:
        store = open_store(load_settings(**begin.settings))
    except AgentLayerError as error:
        return Ready(error=str(error)), None
    return Ready(), lambda: ScorerRunner(store)


class ScorerRunner:
    """Judges when it is asked to, and tells what came of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._channel: Channel[ToHost] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def speak(self, channel: Channel[ToHost]) -> None:
        """Answer there."""
        self._channel = channel

    def hear(self, message: ToHost) -> None:
        """Do what the worker asks."""
        match message:
            case Check():
                self._tell(Checked(token=message.token, error=_find(message.scorer)))
            case Judge():
                task = asyncio.create_task(self._judge(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case _:
                return

    async def tell_activity(self) -> None:
        """There is nothing to tell that nobody asked for."""

    async def _judge(self, asked: Judge) -> None:
        task, trajectory_id = asked.task, asked.trajectory_id
        try:
            scorer = load_scorer(asked.scorer)
        except BadInputError as error:  # it was there when it was looked for
            names = declared_rewards(task, asked.scorer)
            rewards = null_rewards(task, trajectory_id, names, "verifier_error", str(error))
            self._tell(Judged(token=asked.token, rewards=rewards))
            return
        assert scorer is not None
        try:
            trajectory = await asyncio.to_thread(self._store.get, trajectory_id)
        except (AgentLayerError, RedisError, OSError) as error:
            self._tell(Judged(token=asked.token, error=f"{type(error).__name__}: {error}"))
            return
        self._tell(Started(token=asked.token))
        rewards = await judge(scorer, task, trajectory, asked.result, asked.seconds)
        self._tell(Judged(token=asked.token, rewards=rewards))

    def _tell(self, message: Checked | Started | Judged) -> None:
        if self._channel is not None:
            self._channel.send(message)


def _find(name: str) -> str | None:
    """What is wrong with a scorer."""
    try:
        load_scorer(name)
    except BadInputError as error:
        return str(error)
    return None
