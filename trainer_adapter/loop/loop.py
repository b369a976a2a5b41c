"""The training loop: collect the groups of a step, update, publish a policy version, repeat.

Workers never wait for it: during an update they work on the groups that ``max_staleness`` allows ahead of it. A stop
ends it between two steps, with a checkpoint. A kill loses the updates after the last checkpoint; their groups were not
acknowledged, and come again.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import isfinite
from pathlib import Path
from types import MappingProxyType

import msgspec

from agent_layer.errors import AgentLayerError
from agent_layer.health import Restart, RoundProgress, StepProgress, find_unhealthy, set_limits
from agent_layer.schema import HeldOutTasks
from agent_layer.store import GroupDelivery
from trainer_adapter.algorithms import resolve_algorithm
from trainer_adapter.config import TrainConfig
from trainer_adapter.data import (
    NO_BOUNDS,
    CreditRule,
    GroupIntake,
    ModelBounds,
    TrainingBatch,
    advantage_rule,
    count_step,
    find_exclusions,
    gap_by_engine,
    read_group,
    record_batch,
    record_tokens,
    select_batch,
    success_by_task,
)
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor
from trainer_adapter.loop.feed import GroupFeed
from trainer_adapter.loop.held_out import HeldOutEvaluation
from trainer_adapter.loop.resumed import write_fixed_options
from trainer_adapter.loop.row_memory import RowTooLargeError, is_out_of_memory, lower_row_memory
from trainer_adapter.teacher import Teacher, judge_group
from trainer_adapter.verl import PolicyTrainer, UpdateReport, WeightPublisher

_DYNAMIC_ROUNDS = 9
"""Steps' worth of groups that dynamic sampling may add, so that ten are sampled at most, as in DAPO's recipe."""
_MAX_USELESS_ROUNDS = 10
"""Steps' worth of groups without use after which a step is given up, whatever its health allows."""
_REMEMBERED_STEPS = 200
"""Reports with which those of later steps are compared."""


class TrainingLoop:
    """One training run, from the position of its trainer to its last step."""

    def __init__(  # noqa: PLR0913  # its parts
        self,
        run: str,
        config: TrainConfig,
        feed: GroupFeed,
        trainer: PolicyTrainer,
        publisher: WeightPublisher,
        checkpoints: CheckpointDirectory,
        *,
        fixed: Mapping[str, str] = MappingProxyType({}),
        bounds: ModelBounds = NO_BOUNDS,
        memory_path: Path | None = None,
        held_out: HeldOutEvaluation | None = None,
        held_out_tasks: HeldOutTasks | None = None,
        teacher: Teacher | None = None,
        restarts_since: Callable[[float], list[Restart]] = lambda _: [],
        judged: Callable[[StepProgress], None] = lambda _: None,
    ) -> None:
        self._run = run
        self._config = config
        self._algorithm = resolve_algorithm(config.algorithm)
        self._rule = CreditRule.of(self._algorithm)
        self._bounds, self._memory_path = bounds, memory_path
        self._feed = feed
        self._trainer = trainer
        self._publisher = publisher
        self._checkpoints, self._fixed = checkpoints, fixed
        self._held_out, self._held_out_tasks = held_out, held_out_tasks
        self._teacher = teacher
        self._restarts_since = restarts_since
        self._judged = judged
        self._evaluations: list[RoundProgress] = []
        """Rounds that no report has yet."""
        self._stop: Callable[[], bool] = lambda: False
        self._step = 0
        self._version = 0
        """Newest published version."""
        self._is_published = True
        """Whether the trainer's weights are that version."""
        self._taken: list[str] = []
        """Groups trained, or found untrainable, since the last checkpoint."""
        self._health = set_limits(config.health)
        self._reports: list[StepProgress] = []
        """Of the last steps, those before this start included."""
        self._started_at = 0

    def run(
        self, cursor: Cursor, stop: Callable[[], bool], reports: Sequence[StepProgress] = ()
    ) -> Iterator[StepProgress]:
        """Train until the last step, or until ``stop`` returns True; then make a checkpoint.

        Args:
            cursor: position of the trainer's weights.
            stop: called during the wait for groups, and between steps.
            reports: of the steps before, oldest first.

        Yields:
            one report per step, once its weights serve.

        Raises: AgentLayerError: the run is not healthy, or its groups do not come.
        """
        self._step, self._stop, self._started_at = cursor.step, stop, cursor.step
        self._reports = [report for report in reports if report.step <= cursor.step][-_REMEMBERED_STEPS:]
        newest = self._publisher.newest()
        is_newest = cursor.policy_version == newest
        self._version = newest if is_newest else self._publish()
        with self._feed.pause_for_switch(self._version):
            self._publisher.serve(self._version)
        try:
            if is_newest:
                self._evaluate()
            elif self._held_out:
                self._held_out.cancel(newest)
            yield from self._steps()
        except RowTooLargeError:  # in the middle of an update
            raise
        except AgentLayerError:  # raised between updates only, when the weights are consistent
            self._checkpoint()
            raise
        self._checkpoint()

    def _steps(self) -> Iterator[StepProgress]:
        deliveries = self._feed.follow(self._stop)
        while self._step < self._config.steps and not self._stop():
            self._feed.submit_groups(self._version, self._step)
            seconds: dict[str, float] = {}
            with _timed(seconds, "wait"):
                groups = self._collect_groups(deliveries, seconds)
            if groups is None:
                return
            report = self._train(groups, seconds)
            self._reports = [*self._reports, report][-_REMEMBERED_STEPS:]
            yield report
            self._stop_unless_healthy(report)

    def _collect_groups(
        self, deliveries: Iterator[GroupDelivery], seconds: dict[str, float]
    ) -> list[GroupIntake] | None:
        """Wait for the groups of one step; None when ``stop`` ended the wait.

        A group with a rollout that is too old is redone under the present weights. Groups with too few usable rollouts
        are replaced. For groups that teach nothing, up to ``extra_groups`` others are added.

        Raises: AgentLayerError: the run is not healthy, or hardly any group can be trained.
        """
        groups: list[GroupIntake] = []
        while not self._has_enough(groups):
            if (delivery := next(deliveries, None)) is None:
                return None
            group = read_group(
                delivery,
                self._version,
                self._config.rollouts.max_staleness,
                self._rule,
                self._config.lengths,
                self._bounds,
                held_out=self._held_out_tasks,
                accepts_shared_judge=self._config.accept_shared_judge,
            )
            if self._teacher is not None and not group.is_stale:
                with _timed(seconds, "teacher"):
                    group = judge_group(group, partial(self._teacher.score, stop=self._stop))
                if self._stop():  # it may have no answers for that reason alone
                    return None
            groups.append(group)
            if group.is_stale:
                self._redo(groups)
            elif group.is_void or (self._max_extra_groups and not group.teaches):
                self._request_replacement(groups)
            if sum(group.is_void for group in groups) >= _MAX_USELESS_ROUNDS * self._feed.groups_per_step:
                raise self._explain_useless(groups)
        return groups

    def _redo(self, groups: Sequence[GroupIntake]) -> None:
        """Have the rollouts of the last group sampled again by the present weights, unless that was done too often."""
        group_id = groups[-1].group.group_id
        self._publisher.serve(self._version)  # an engine may have fallen back
        self._taken.append(group_id)  # never trained, so it need not wait for an update
        self._feed.redo_group(group_id)
        if len(groups) >= 2 * self._feed.groups_per_step:
            self._stop_unless_healthy(self._report(groups, {}), groups)

    def _request_replacement(self, groups: Sequence[GroupIntake]) -> None:
        """Submit another group in place of the last, unless too many failed."""
        last = groups[-1]
        if last.is_void:  # not trained, so it need not wait for an update
            self._taken.append(last.group.group_id)
            self._feed.close_groups([last.group.group_id])
        else:
            self._feed.replace_group(last.group.group_id)
        if len(groups) >= self._feed.groups_per_step:
            self._stop_unless_healthy(self._report(groups, {}), groups)
        self._feed.submit_groups(self._version, self._step)

    def _has_enough(self, groups: Sequence[GroupIntake]) -> bool:
        kept = [group for group in groups if not group.is_void]
        num_extra = min(self._max_extra_groups, sum(not group.teaches for group in kept))
        return len(kept) >= self._feed.groups_per_step + num_extra

    @property
    def _max_extra_groups(self) -> int:
        given, dynamic = self._config.rollouts.extra_groups, _DYNAMIC_ROUNDS * self._feed.groups_per_step
        return given if given is not None else dynamic if self._algorithm.resamples_equal else 0

    def _train(self, groups: Sequence[GroupIntake], seconds: dict[str, float]) -> StepProgress:
        is_regularised = self._algorithm.is_regularised(self._step, self._config.steps)
        keep_equal = is_regularised or not self._algorithm.compares_groups
        batch = select_batch((group.samples for group in groups), keep_equal=keep_equal, rule=self._rule)
        kept = [group for group in groups if not group.is_void]
        by_task = success_by_task(kept, self._config.rollouts.success_above)
        report = self._report(groups, by_task, len(batch.samples))
        if excluded := find_exclusions(groups, batch, self._run, self._step + 1):
            self._feed.append(*excluded)
        self._stop_unless_healthy(report, groups)
        with _timed(seconds, "update"):
            update = self._update(batch)
        engines = {call_id: engine for group in groups for call_id, engine in group.engines.items()}
        gaps = gap_by_engine(batch, update.tokens, engines, self._version) if update else {}
        self._step += 1
        self._feed.update_success_rates(by_task)
        self._take(kept)  # before the switch, which may fail: the checkpoint must not count them as open
        with _timed(seconds, "switch"):
            if update is not None and update.is_changed:
                self._version = self._publish()
                with self._feed.pause_for_switch(self._version):
                    self._publisher.serve(self._version, is_required=True, stop=self._stop)
        with _timed(seconds, "evaluation"):
            self._evaluate()
        with _timed(seconds, "checkpoint"):
            if self._step % self._config.keep.checkpoint_steps == 0:
                self._checkpoint()
        waited = {} if self._teacher is None else {"teacher_seconds": seconds.pop("teacher", 0.0)}  # part of the wait
        report = msgspec.structs.replace(
            report,
            policy_version=self._version,
            ended_at=time.time(),
            num_skipped_optimizer_steps=update.num_skipped_steps if update else 0,
            metrics=(_numbers(update) if update else {}) | waited,
            gap_by_engine=_finite(gaps),
            evaluations=self._evaluations,
            restarts=self._restarts_since(self._reports[-1].ended_at if self._reports else 0.0),
            **{f"{phase}_seconds": taken for phase, taken in seconds.items()},
        )
        self._evaluations = []
        return self._with_health(report)

    def _evaluate(self) -> None:
        """Evaluate the version that serves if that is due; the next step's rollouts are sampled beside it."""
        if self._held_out is None or not self._held_out.is_due(self._step):
            return
        if self._step < self._config.steps:
            self._feed.submit_groups(self._version, self._step)
        self._evaluations += self._held_out.evaluate(self._version, self._stop)

    def _update(self, batch: TrainingBatch) -> UpdateReport | None:
        """Record the batch, update the weights, and record what was computed.

        Returns: None: a batch without samples changes nothing.
        """
        if not batch.samples:
            return None
        rule = advantage_rule(self._algorithm)
        record = record_batch(batch, self._run, self._step + 1, self._version, self._config.lengths, rule)
        self._feed.append(record)
        try:
            update = self._trainer.update(batch, self._step, self._version)
        except (MemoryError, RuntimeError) as error:  # torch's own is a RuntimeError
            if not is_out_of_memory(error):
                raise
            raise self._explain_memory(batch) from error
        self._feed.append(*record_tokens(record, update.tokens))
        return update

    def _explain_memory(self, batch: TrainingBatch) -> RowTooLargeError:
        """Have the longest rows left out after the restart, or they would end each update to come."""
        longest = max(len(sample.prompt_ids) + len(sample.response_ids) for sample in batch.samples)
        optimizer = self._config.optimizer
        microbatch = optimizer.microbatch_tokens
        most = self._memory_path and lower_row_memory(
            self._memory_path, longest, microbatch * optimizer.sequence_parallel
        )
        remedy = (
            f"lower optimizer.microbatch_tokens ({microbatch})"
            if most is None
            else f"start it again: rollouts with a row above {most} tokens are left out from now on"
        )
        return RowTooLargeError(
            f"run {self._run}, step {self._step + 1}: expected an update to fit into memory, but it ran out of it; its"
            f" longest row has {longest} tokens; {remedy}"
        )

    def _publish(self) -> int:
        """Publish the trainer's weights as the newest version; versions of a killed trainer stay below it."""
        self._is_published = False
        model, precision = self._config.model, self._config.optimizer.precision
        number = self._publisher.publish(self._trainer.published_weights(), model, self._step, precision)
        self._publisher.keep_newest(self._config.keep.num_versions)
        self._is_published = True
        return number

    def _checkpoint(self) -> None:
        """Save everything, then acknowledge: weights that learned from a group are saved before its acknowledgement."""
        if not self._taken:
            return
        version = self._version if self._is_published else None

        def write(directory: Path) -> None:
            self._trainer.save(directory)
            write_fixed_options(self._fixed, directory)

        self._checkpoints.save(self._feed.cursor(self._step, version, self._taken), write)
        self._feed.forget_draws()
        self._feed.acknowledge(self._taken)
        self._taken = []
        self._checkpoints.keep_newest(self._config.keep.num_checkpoints)

    def _stop_unless_healthy(self, report: StepProgress, groups: Sequence[GroupIntake] = ()) -> None:
        """Raise when a report has a finding that ends the run; these groups are given up, or they would end it again.

        Raises: AgentLayerError: what is wrong, since when, and what to do.
        """
        self._judged(report)
        if stops := [finding for finding in report.health if finding.level == "stop"]:
            self._take([group for group in groups if not group.is_void])
            names = ", ".join(f"{finding.name}: off" for finding in stops)
            raise AgentLayerError(
                f"run {self._run}, step {report.step}: expected a healthy run, found"
                f" {' '.join(map(str, stops))}{_explain_exclusions(groups)} Start it again once that is mended;"
                f" 'health: {{{names}}}' in its configuration trains on regardless"
            )

    def _explain_useless(self, groups: Sequence[GroupIntake]) -> AgentLayerError:
        useless = [group for group in groups if group.is_void]
        num_stale = sum(group.is_stale for group in useless)
        return AgentLayerError(
            f"run {self._run}, step {self._step + 1}: expected {self._feed.groups_per_step} groups to train on, found"
            f" {len(useless)} others: {num_stale} with tokens that are too old, {len(useless) - num_stale} with fewer"
            f" than two rewards of rollouts that can be trained.{_explain_exclusions(useless)} Start it again once that"
            " is mended; 'agent-layer health' and 'agent-layer dead list' show more"
        )

    def _take(self, groups: Sequence[GroupIntake]) -> None:
        """Close groups, and acknowledge them at the next checkpoint."""
        self._taken += [group.group.group_id for group in groups]
        self._feed.close_groups(self._taken)

    def _report(self, groups: Sequence[GroupIntake], by_task: dict[str, float], num_samples: int = 0) -> StepProgress:
        """Return what is known of the next update before it."""
        counts = count_step(groups, compares_groups=self._algorithm.compares_groups)
        if self._teacher is not None:  # it teaches by each group
            counts = msgspec.structs.replace(counts, num_dead_groups=0)
        report = StepProgress(
            run=self._run,
            step=self._step + 1,
            policy_version=self._version,
            ended_at=time.time(),
            num_samples=num_samples,
            success=sum(by_task.values()) / len(by_task) if by_task else None,
            success_by_task=by_task,
            **msgspec.structs.asdict(counts),
        )
        return self._with_health(report)

    def _with_health(self, report: StepProgress) -> StepProgress:
        found = find_unhealthy([*self._reports, report], self._health, self._started_at)
        return msgspec.structs.replace(report, health=found)


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Generator[None]:
    """Add the seconds of a phase to its others."""
    began = time.monotonic()
    yield
    seconds[phase] = seconds.get(phase, 0.0) + time.monotonic() - began


def _explain_exclusions(groups: Sequence[GroupIntake]) -> str:
    """Return which kinds of rollouts could not be trained, and the reason of the first; empty without any."""
    excluded = [one for group in groups for one in group.excluded]
    if not excluded:
        return ""
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(count_step(groups).untrainable.items()))
    return f" Not trainable: {kinds}; the first: {excluded[0].reason}."


def _numbers(report: UpdateReport) -> dict[str, float | None]:
    """Return the known numbers of a report by name; None: not finite."""
    gap = report.logprob_gap
    gaps = {"logprob_gap": gap.largest, "logprob_gap_mean": gap.mean} if gap else {}
    return _finite(report.metrics | gaps | {"entropy": report.entropy, "learning_rate": report.learning_rate})


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers with None in place of those that are not finite, which JSON does not have."""
    return {name: value if isfinite(value) else None for name, value in numbers.items()}
