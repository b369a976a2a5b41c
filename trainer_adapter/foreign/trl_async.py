"""Rollouts for TRL's ``AsyncGRPOTrainer``: one object is its ``rollout_worker`` and its ``weight_transfer``.

A thread plays rounds of groups while TRL trains those before. TRL's synchronization makes a policy version: engines
finish the calls in flight, and load it. A rollout may go on over it, and each row has the number of the oldest weights
that sampled one of its tokens: TRL drops those beyond its ``max_staleness``. Nothing here imports TRL.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, cycle, islice
from pathlib import Path
from queue import Full, Queue
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from agent_layer.errors import AgentLayerError
from agent_layer.schema import Task, TrainingSample
from agent_layer.settings import Settings, load_settings
from trainer_adapter.config import HeldOutConfig
from trainer_adapter.data import group_advantages, select_batch
from trainer_adapter.foreign.rounds import GroupRequest, RoundPlayer
from trainer_adapter.foreign.weights import ServedWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_MAX_USELESS_ROUNDS = 10
"""Rounds in a row without two different rewards in a group after which the worker gives up."""
_POLL_SECONDS = 0.2


class AsyncTrlRow(NamedTuple):
    """What TRL reads of a ``RolloutSample``."""

    input_ids: "NDArray[np.int64]"
    """[num_tokens], prompt included, as are the next two."""
    completion_mask: "NDArray[np.int64]"
    """1 where the policy sampled the token and this row trains it."""
    old_log_probs: "NDArray[np.float32]"
    """Log-probabilities of the engine at sampling; 0.0 where the mask is 0."""
    advantage: float
    model_version: int
    """TRL's number of the oldest weights that sampled a trained token."""
    group_id: int
    metrics: dict[str, float]
    enqueued_at: float
    trajectory_id: str
    prompt: Sequence[dict[str, str]] = ()
    """Messages that TRL shows; they are in the store."""
    completion: Sequence[dict[str, str]] = ()


class AsyncTrlRollouts:
    """Plays tasks in turn as rollouts of any agent, and hands over the rows of groups whose rewards differ.

    Workers and an engine of the same run must be there: ``agent-layer up``, ``agent-layer work``. An agent that forks
    has several rows, which share their rollout's advantage.

    Args:
        model: directory of the first weights, with tokenizer; TRL starts from it, too.
        tasks: played in this order, again and again.
        settings: locations of state; None: those of the environment.
        group_size: rollouts of a group, whose rewards are compared.
        groups_per_round: groups that are played at a time.
        temperature: of every call; TRL's must be the same.
        held_out: sets that are not trained; their tasks are not played.
        patience_seconds: longest wait for the next group.
    """

    def __init__(  # noqa: PLR0913  # TRL's configuration has them, but no worker sees it
        self,
        model: Path,
        tasks: Sequence[Task],
        settings: Settings | None = None,
        *,
        group_size: int = 8,
        groups_per_round: int = 8,
        temperature: float = 1.0,
        held_out: Sequence[HeldOutConfig] = (),
        patience_seconds: float = 600.0,
    ) -> None:
        settings = settings or load_settings()
        self._player = RoundPlayer(tasks, settings, settings.run, held_out=held_out, patience_seconds=patience_seconds)
        self._weights = ServedWeights(model, settings)
        self._size, self._num_groups, self._temperature = group_size, groups_per_round, temperature
        self.rollout_buffer: Queue[AsyncTrlRow] = Queue(maxsize=group_size * groups_per_round)
        self.metrics_queue: Queue[dict[str, float]] = Queue()
        self._version, self._trl_offset = 0, 0
        """Newest version that engines serve, and what it is ahead of TRL's number."""
        self._stop, self._thread = Event(), ThreadPoolExecutor(1, "agent-layer-rollouts")
        self._playing: Future[None] | None = None

    def dataset_rows(self) -> list[dict[str, str]]:
        """Return the rows of TRL's data set, which counts its epochs by them."""
        return [{"prompt": task.id} for task in self._player.tasks]

    def init_weight_transfer(self) -> None:
        """Do nothing: engines load files."""

    def pause(self) -> None:
        """Do nothing: gateways hold calls while an engine loads weights."""

    def send_weights(self, iterator: "Iterator[tuple[str, Tensor]]") -> None:
        """Publish the trainer's weights, and load them into the engines.

        Raises: EngineError: no engine of the run serves them.
        """
        self._version = self._weights.serve(iterator, self._version - self._trl_offset)

    def resume(self) -> None:
        """Do nothing: gateways send calls once an engine has its weights."""

    def destroy(self) -> None:
        """Do nothing: nothing is held."""

    def update_model_version(self, model_version: int) -> None:
        """Take over TRL's number of the newest weights."""
        self._trl_offset = self._version - model_version

    def start(self) -> None:
        """Begin to play."""
        self._playing = self._thread.submit(self._play_rounds)

    def stop(self) -> None:
        """End the round; its groups are not handed over."""
        self._stop.set()
        self._thread.shutdown()

    def check_health(self, stale_after_s: float) -> None:
        """Raise what ended the thread; ``patience_seconds`` ends a wait that is too long.

        Raises: AgentLayerError: groups did not come, or taught nothing.
        """
        del stale_after_s
        if self._playing and self._playing.done():
            self._playing.result()

    def _play_rounds(self) -> None:
        tasks, group_ids, num_useless = cycle(self._player.tasks), count(), 0
        for step in count(1):
            requests = [GroupRequest(task.id, self._size) for task in islice(tasks, self._num_groups)]
            groups = self._player.play(requests, self._version, self._temperature, self._stop.is_set)
            if self._stop.is_set():
                return
            batches = [select_batch([group.samples], keep_equal=False) for group in groups]
            useful = [batch for batch in batches if batch.samples]
            num_useless = 0 if useful else num_useless + 1
            if num_useless >= _MAX_USELESS_ROUNDS:
                raise AgentLayerError(
                    f"TRL: expected two different rewards in some group, found none in {num_useless} rounds of"
                    f" {self._num_groups}; see 'agent-layer rollouts' for the causes"
                )
            if useful:
                whole = select_batch((group.samples for group in groups), keep_equal=False)
                self._player.record(whole, step, self._version)
            for batch, group_id in zip(useful, group_ids, strict=False):
                advantages = group_advantages(batch.rewards, scale_by_std=True)
                for place, sample in zip(batch.rollout_of, batch.samples, strict=True):
                    self._hand_over(self._make_row(sample, advantages[place] or 0.0, batch.rewards[place], group_id))

    def _make_row(self, sample: TrainingSample, advantage: float, reward: float, group_id: int) -> AsyncTrlRow:
        num_prompt = len(sample.prompt_ids)
        oldest = min(version for version in sample.versions if version >= 0)
        return AsyncTrlRow(
            input_ids=np.array([*sample.prompt_ids, *sample.response_ids]),
            completion_mask=np.array([0] * num_prompt + list(sample.loss_mask)),
            old_log_probs=np.array([0.0] * num_prompt + list(sample.logprobs), dtype=np.float32),
            advantage=advantage,
            model_version=oldest - self._trl_offset,
            group_id=group_id,
            metrics={"reward": reward},
            enqueued_at=time.time(),
            trajectory_id=sample.trajectory_id,
        )

    def _hand_over(self, row: AsyncTrlRow) -> None:  # kept: it waits until there is room
        is_waiting = True
        while is_waiting and not self._stop.is_set():
            try:
                self.rollout_buffer.put(row, timeout=_POLL_SECONDS)
                is_waiting = False
            except Full:
                continue
