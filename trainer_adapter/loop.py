"""This file holds the training loop: whole groups in, one update, one policy version out, again.

Workers never wait for it: while an update runs, they work on the groups that ``max_staleness`` allows ahead of it.
A stop ends it between two updates, with a checkpoint; a kill loses what came after the last checkpoint, and the groups
since then, which were not acknowledged, come again.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from agent_layer.errors import AgentLayerError
from agent_layer.settings import Settings
from agent_layer.store.follow import GroupDelivery
from trainer_adapter.advantages import select_batch
from trainer_adapter.checkpoint import checkpoint_directory, keep_newest, seal_checkpoint
from trainer_adapter.config import TrainConfig
from trainer_adapter.embedded import EmbeddedTrainer, UpdateReport
from trainer_adapter.groups import GroupFeed, success_by_task
from trainer_adapter.intake import GroupIntake, StepCounts, count_step, read_group
from trainer_adapter.progress import StepProgress
from trainer_adapter.weights import WeightPublisher

__all__ = ["TrainingLoop"]


class TrainingLoop:
    """One training run from where it stands to its last step."""

    def __init__(
        self,
        config: TrainConfig,
        settings: Settings,
        run: str,
        feed: GroupFeed,
        trainer: EmbeddedTrainer,
        publisher: WeightPublisher,
    ) -> None:
        self._config = config
        self._settings = settings
        self._run = run
        self._feed = feed
        self._trainer = trainer
        self._publisher = publisher
        self._unacked: list[str] = []
        self._num_stale = 0

    def run(self, first_step: int, policy_version: int, stop: Callable[[], bool]) -> Iterator[StepProgress]:
        """Train until the last step or until ``stop`` says so.

        Args:
            first_step: updates done before.
            policy_version: version of the trainer's weights.
            stop: asked while groups are waited for and between updates.

        Yields: one report per step, after its weights serve.
        """
        step, deliveries = first_step, self._feed.follow(stop)
        try:
            while step < self._config.steps and not stop():
                self._feed.ask()
                began = time.monotonic()
                groups = self._take(deliveries, policy_version)
                if len(groups) < self._feed.groups_per_step:
                    return
                step += 1
                report = self._train(step, policy_version, groups, time.monotonic() - began)
                policy_version = report.policy_version
                yield report
        finally:
            if step > first_step and self._unacked:
                self._checkpoint(step, policy_version)

    def _take(self, deliveries: Iterator[GroupDelivery], policy_version: int) -> list[GroupIntake]:
        """Wait for the groups of one step; stale ones are counted, left out, and asked for anew."""
        groups: list[GroupIntake] = []
        while len(groups) < self._feed.groups_per_step:
            delivery = next(deliveries, None)
            if delivery is None:
                return []
            group = read_group(delivery)
            if group.staleness(policy_version) <= self._config.rollouts.max_staleness:
                groups.append(group)
                continue
            self._num_stale += 1
            self._finish([delivery])
            self._feed.ask()
        return groups

    def _train(
        self, step: int, policy_version: int, groups: Sequence[GroupIntake], wait_seconds: float
    ) -> StepProgress:
        counts = count_step(groups, policy_version)
        self._check_health(step, counts)
        began = time.monotonic()
        batch = select_batch(group.samples for group in groups)
        metrics = _numbers(self._trainer.update(batch, step - 1, policy_version)) if batch.samples else {}
        updated = time.monotonic()
        if batch.samples:
            policy_version = self._publish(step)
        published = time.monotonic()
        deliveries = [group.delivery for group in groups]
        self._finish(deliveries)
        if step % self._config.keep.checkpoint_steps == 0:
            self._checkpoint(step, policy_version)
        by_task = success_by_task(deliveries, self._config.rollouts.success_above)
        return StepProgress(
            run=self._run,
            step=step,
            policy_version=policy_version,
            ended_at=time.time(),
            num_rollouts=counts.num_rollouts,
            num_samples=len(batch.samples),
            num_calls=counts.num_calls,
            num_tokens=counts.num_tokens,
            reward_mean=counts.reward_mean,
            success=sum(by_task.values()) / len(by_task) if by_task else None,
            success_by_task=by_task,
            num_null_rewards=counts.num_null_rewards,
            num_dead_groups=counts.num_dead_groups,
            num_stale_groups=self._num_stale,
            num_dropped_steps=counts.num_dropped_steps,
            staleness_mean=counts.staleness_mean,
            staleness_max=counts.staleness_max,
            wait_seconds=wait_seconds,
            update_seconds=updated - began,
            switch_seconds=published - updated,
            checkpoint_seconds=time.monotonic() - published,
            metrics=metrics,
        )

    def _check_health(self, step: int, counts: StepCounts) -> None:
        most = self._config.rollouts.max_null_share
        if counts.num_null_rewards > most * counts.num_rollouts:
            raise AgentLayerError(
                f"run {self._run}, step {step}: expected at most {most:.0%} of rollouts without a reward, found"
                f" {counts.num_null_rewards} of {counts.num_rollouts}; 'agent-layer dead' and"
                f" 'agent-layer query --run {self._run} --status failed' show why"
            )

    def _publish(self, step: int) -> int:
        version = self._publisher.publish(self._trainer.weights(), self._config.model, step)
        self._publisher.keep_newest(self._config.keep.num_versions)
        return version.number

    def _finish(self, deliveries: Sequence[GroupDelivery]) -> None:
        self._feed.learn(deliveries)
        self._unacked += [delivery.group.group_id for delivery in deliveries]

    def _checkpoint(self, step: int, policy_version: int) -> None:
        """Save everything, then acknowledge: a group is never acknowledged before the weights that learned from it."""
        directory = checkpoint_directory(self._settings, self._run, step)
        self._trainer.save(directory)
        seal_checkpoint(directory, self._feed.cursor(step, policy_version, self._unacked))
        self._feed.acknowledge(self._unacked)
        self._unacked = []
        keep_newest(self._settings, self._run, self._config.keep.num_checkpoints)


def _numbers(report: UpdateReport) -> dict[str, float]:
    """Numbers of a report by name; what is not known is left out."""
    own = {"logprob_gap": report.logprob_gap, "entropy": report.entropy, "learning_rate": report.learning_rate}
    return report.metrics | {name: value for name, value in own.items() if value is not None}
