"""Runner of a scorer process."""

import asyncio
import sys
from collections.abc import Callable

from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.settings import load_settings
from agent_layer.store import Store, open_store
from envs.hosts.channel import Channel
from envs.hosts.protocol import Begin, Check, Checked, Judge, Judged, Ready, Started, ToHost
from envs.scorers import declared_rewards, load_scorer, null_rewards, run_scorer


def load_scorer_runner(begin: Begin) -> tuple[Ready, Callable[[], "ScorerRunner"] | None]:
    """Open the store; return the answer to the worker, and what makes the runner."""
    sys.path[:] = begin.path
    try:
        store = open_store(load_settings(**begin.settings))
    except AgentLayerError as error:
        return Ready(error=str(error)), None
    return Ready(), lambda: ScorerRunner(store)


class ScorerRunner:
    """Scores stored trajectories side by side, each read from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._channel: Channel[ToHost] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, channel: Channel[ToHost]) -> None:
        """Answer over this channel."""
        self._channel = channel

    def on_message(self, message: ToHost) -> None:
        """Carry out a request of the worker."""
        match message:
            case Check():
                self._send(Checked(token=message.token, error=_check(message.scorer)))
            case Judge():
                task = asyncio.create_task(self._score(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case _:
                return

    async def report_activity(self) -> None:
        """Return at once: scorers report nothing but answers."""

    async def _score(self, request: Judge) -> None:
        task, trajectory_id = request.task, request.trajectory_id
        try:
            scorer = load_scorer(request.scorer)
        except BadInputError as error:  # it passed the check before
            names = declared_rewards(task, request.scorer)
            rewards = null_rewards(task, trajectory_id, names, "verifier_error", str(error))
            self._send(Judged(token=request.token, rewards=rewards))
            return
        assert scorer is not None
        try:
            trajectory = await asyncio.to_thread(self._store.get, trajectory_id)
        except (AgentLayerError, RedisError, OSError) as error:
            self._send(Judged(token=request.token, error=f"{type(error).__name__}: {error}"))
            return
        self._send(Started(token=request.token))
        rewards = await run_scorer(scorer, task, trajectory, request.result, request.seconds)
        self._send(Judged(token=request.token, rewards=rewards))

    def _send(self, message: Checked | Started | Judged) -> None:
        if self._channel is not None:
            self._channel.send(message)


def _check(name: str) -> str | None:
    """Return what is wrong with a scorer; None: nothing."""
    try:
        load_scorer(name)
    except BadInputError as error:
        return str(error)
    return None
