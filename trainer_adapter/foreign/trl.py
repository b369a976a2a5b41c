"""Rollouts for TRL's ``GRPOTrainer``: its ``rollout_func`` is an instance of ``TrlRollouts``, its prompts are task ids.

TRL trains one row for each prompt: token ids, log-probabilities of the engine, and an ``env_mask`` that is 1 where the
policy sampled. All three come from the store. Before rollouts begin, the trainer's weights are published as a policy
version and loaded into the engines, so that each token names the weights that sampled it. Nothing here imports TRL.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import Task
from agent_layer.settings import Settings, load_settings
from trainer_adapter.config import HeldOutConfig
from trainer_adapter.data import GroupIntake, GroupSamples, RolloutSamples, select_batch
from trainer_adapter.foreign.rounds import GroupRequest, RoundPlayer
from trainer_adapter.foreign.weights import ServedWeights

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


class TrainerState(Protocol):
    """Progress of a trainer of transformers."""

    global_step: int
    """Optimizer steps so far."""


class Accelerator(Protocol):
    """What ``accelerate`` offers a trainer."""

    @property
    def num_processes(self) -> int:
        """Return the number of training processes."""
        ...

    def get_state_dict(self, model: object) -> "Mapping[str, Tensor]":
        """Return whole tensors by name."""
        ...


class EndingTokenizer(Protocol):
    """The tokenizer of a trainer."""

    eos_token_id: int


class GenerationArguments(Protocol):
    """What is used of ``GRPOConfig``, in batches of a process."""

    steps_per_generation: int
    gradient_accumulation_steps: int


class TrlTrainer(Protocol):
    """What is used of TRL's trainer."""

    model: object
    state: TrainerState
    args: GenerationArguments
    accelerator: Accelerator
    temperature: float
    num_generations: int

    @property
    def processing_class(self) -> EndingTokenizer:
        """Return the tokenizer."""
        ...


class TrlRows(TypedDict):
    """What TRL reads of a ``rollout_func``, all [num_prompts]. Fields that it does not know reach reward functions."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float]]
    env_mask: list[list[int]]
    agent_layer_reward: list[float | None]
    trajectory_id: list[str | None]


class _Row(NamedTuple):
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    env_mask: list[int]
    reward: float | None
    trajectory_id: str | None


class TrlRollouts:
    """Plays the prompts of TRL's trainer as rollouts of any agent.

    Workers and an engine of the same run must be there: ``agent-layer up``, ``agent-layer work``.

    Args:
        model: directory of the first weights, with tokenizer; TRL starts from it, too.
        tasks: one for each prompt.
        settings: locations of state; None: those of the environment.
        held_out: sets that are not trained; their tasks are no rows of ``dataset_rows``.
        patience_seconds: longest wait for the next group.
    """

    def __init__(
        self,
        model: Path,
        tasks: Sequence[Task],
        settings: Settings | None = None,
        *,
        held_out: Sequence[HeldOutConfig] = (),
        patience_seconds: float = 600.0,
    ) -> None:
        settings = settings or load_settings()
        self._player = RoundPlayer(tasks, settings, settings.run, held_out=held_out, patience_seconds=patience_seconds)
        self._weights = ServedWeights(model, settings)

    def dataset_rows(self) -> list[dict[str, str]]:
        """Return the rows of TRL's data set: the prompt is the id of a task, the agent writes the messages."""
        return [{"prompt": task.id} for task in self._player.tasks]

    def reward(
        self, *, completions: Sequence[object], agent_layer_reward: list[float | None], **others: object
    ) -> list[float | None]:
        """Return the rewards of the store, as a reward function of TRL; None: no part of its group's baseline."""
        del completions, others
        return agent_layer_reward

    def __call__(self, prompts: Sequence[str], trainer: TrlTrainer) -> TrlRows:
        """Play the prompts with the trainer's present weights.

        A rollout without a row that TRL could train exactly has one token that is masked, and no reward: one that
        failed, has no reward, or has several rows because its agent forked.

        Raises:
            BadInputError: the trainer evaluates, has several processes, trains an adapter, or generates more than once
                in an optimizer step; a task is not known.
            AgentLayerError: no rollout can be trained, or their groups do not come.
        """
        _refuse_inexact(trainer)
        tensors = trainer.accelerator.get_state_dict(trainer.model).items()
        version = self._weights.serve(tensors, trainer.state.global_step)
        blocks = groupby(enumerate(prompts), lambda one: (one[0] // trainer.num_generations, str(one[1])))
        requests = [GroupRequest(task_id, len(list(same))) for (_, task_id), same in blocks]
        groups = self._player.play(requests, version, trainer.temperature)
        exact = [[one for one in group.samples.rollouts if _has_one_row(one)] for group in groups]
        kept = [found if len(found) > 1 else [] for found in exact]  # a lone reward would make TRL's deviation NaN
        if not any(kept):
            raise AgentLayerError(_explain_empty(groups))
        for group, rollouts in zip(groups, kept, strict=True):
            if num_left_out := group.num_rollouts - len(rollouts):
                reasons = sorted({one.kind for one in group.excluded})
                log.warning("%d rollouts of task %s not trained %s", num_left_out, group.group.task_id, reasons)
        batch = select_batch(
            (
                GroupSamples(group_id=group.group.group_id, task_id=group.group.task_id, rollouts=rollouts)
                for group, rollouts in zip(groups, kept, strict=True)
            ),
            keep_equal=True,
        )
        self._player.record(batch, trainer.state.global_step + 1, version)
        empty = _Row([trainer.processing_class.eos_token_id], [trainer.processing_class.eos_token_id], [0.0], [0], *_NO)
        rows = [
            row
            for request, rollouts in zip(requests, kept, strict=True)
            for row in [*map(_make_row, rollouts), *[empty] * request.size][: request.size]
        ]
        prompt_ids, completion_ids, logprobs, env_mask, rewards, trajectory_ids = map(list, zip(*rows, strict=True))
        return TrlRows(
            prompt_ids=prompt_ids,
            completion_ids=completion_ids,
            logprobs=logprobs,
            env_mask=env_mask,
            agent_layer_reward=rewards,
            trajectory_id=trajectory_ids,
        )


_NO = (None, None)


def _refuse_inexact(trainer: TrlTrainer) -> None:  # kept: a list of refusals
    if not getattr(trainer.model, "training", True):
        raise BadInputError(
            "TRL: expected a training step, found an evaluation; run 'agent-layer eval' on held-out tasks"
        )
    if trainer.accelerator.num_processes > 1:
        raise BadInputError(
            f"TRL: expected one training process, found {trainer.accelerator.num_processes}; start it with one, or"
            " train with 'agent-layer train'"
        )
    if hasattr(trainer.model, "peft_config"):
        raise BadInputError("TRL: expected whole weights to publish, found an adapter; train without peft_config")
    if trainer.args.steps_per_generation < trainer.args.gradient_accumulation_steps:
        raise BadInputError(
            f"TRL: expected one generation per optimizer step, which is what 'replay' rebuilds, found"
            f" steps_per_generation {trainer.args.steps_per_generation} below gradient_accumulation_steps"
            f" {trainer.args.gradient_accumulation_steps}; leave steps_per_generation out"
        )


def _has_one_row(rollout: RolloutSamples) -> bool:
    return len(rollout.samples) == 1 and rollout.reward is not None


def _make_row(rollout: RolloutSamples) -> _Row:
    (sample,) = rollout.samples
    return _Row(
        list(sample.prompt_ids),
        list(sample.response_ids),
        list(sample.logprobs),
        list(sample.loss_mask),
        rollout.reward,
        rollout.trajectory_id,
    )


def _explain_empty(groups: Sequence[GroupIntake]) -> str:
    reasons = [one.reason for group in groups for one in group.excluded]
    num_forked = sum(len(one.samples) > 1 for group in groups for one in group.samples.rollouts)
    return (
        f"TRL: expected two rollouts with one row each in some group, found none in {len(groups)} groups ({num_forked}"
        f" rollouts have several rows, {sum(group.num_null_rewards for group in groups)} no reward); first reason:"
        f" {reasons[0] if reasons else 'see agent-layer rollouts'}; train agents that fork with 'agent-layer train'"
    )
