"""A warm start from its dataset to a model directory; killed and started again, it ends with the same weights."""

import random
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from agent_layer.errors import BadInputError
from agent_layer.infra import hold_alone, replace_file
from agent_layer.schema import CheckpointRef, check_name, content_hash
from agent_layer.settings import Settings
from trainer_adapter.config import RetentionConfig, TrainConfig
from trainer_adapter.lineage import START_PLAN, START_STEPS, LearnedRow, StartStep, read_parent
from trainer_adapter.loop import CheckpointDirectory, Cursor, read_model_bounds
from trainer_adapter.supervised.config import Method, SupervisedConfig
from trainer_adapter.supervised.read import SupervisedRow, read_examples
from trainer_adapter.verl import (
    LeadingSupervisedTrainer,
    SupervisedTrainer,
    check_new,
    check_verl_options,
    export_checkpoint,
)


class SupervisedStep(StartStep, frozen=True, kw_only=True):
    """Measurements of one optimizer step; its line in ``DIR/runs/RUN/supervised.jsonl``."""

    num_steps: int
    learning_rate: float
    metrics: dict[str, float]
    """See ``SupervisedTrainer.imitate`` and ``prefer``."""

    def __str__(self) -> str:
        found = "  ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"step {self.step} of {self.num_steps}  {found}"


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint belongs to."""

    method: Method
    config: str
    """Configuration without what may change, as JSON."""
    dataset_hash: str
    parent: CheckpointRef | UnsetType | None
    """Checkpoint whose weights the model is; None: it is not known, or none of ours; UNSET: of an earlier release."""


def train_supervised(  # noqa: PLR0913  # what to train on what, and whom it tells
    config: SupervisedConfig,
    settings: Settings,
    method: Method,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[SupervisedStep], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    *,
    open_trainer: Callable[[TrainConfig], SupervisedTrainer | LeadingSupervisedTrainer] = SupervisedTrainer,
) -> bool:
    """Train a model on a dataset, from its newest checkpoint if there is one, and write it.

    Args:
        config: what to train, and how.
        settings: location of checkpoints.
        method: ``sft`` or ``dpo``.
        stop: called between steps; once True, it ends with a checkpoint and writes no model.
        report: called for each step.
        say: called with a sentence on what was left out.
        open_trainer: returns the trained model, in this process alone or in several.

    Returns: whether the model is written.

    Raises: BadInputError: model or dataset cannot be used, they changed since the checkpoint, or ``out`` has files.
    """
    run = check_name(config.run or f"{settings.run}.{method}", "run")
    directory, checkpoints = settings.dir / "runs" / run, CheckpointDirectory(settings, run)
    refusal = f"run {run}: expected no other trainer in {settings.dir}, found one; stop it, or choose another run"
    with hold_alone(directory / "trainer.lock", refusal):
        examples, num_long = read_input(config, method)
        if num_long:
            max_tokens = config.optimizer.max_row_tokens
            say(f"left out: {num_long} of {len(examples) + num_long} examples above {max_tokens} tokens")
        place, cursor = checkpoints.newest() or (None, Cursor())
        _fix_plan(directory / START_PLAN, _make_plan(config, method, examples), place)
        num_steps = config.epochs * -(-len(examples) // config.batch_size)
        learner = _Learner(open_trainer(config.as_training(num_steps)), config, method, examples, num_steps)
        if place is not None:
            learner.trainer.load(place)
        log = directory / START_STEPS
        lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
        replace_file(log, lines[: cursor.step])  # a kill undid the later ones
        for step in range(cursor.step, num_steps):
            if stop():
                _save(checkpoints, learner.trainer, step, config)
                return False
            done = learner.make_step(step)
            with log.open("ab") as file:
                file.write(msgspec.json.encode(done) + b"\n")
            report(done)
            if (step + 1) % config.keep.checkpoint_steps == 0 or step + 1 == num_steps:
                _save(checkpoints, learner.trainer, step + 1, config)
        export_checkpoint(checkpoints.find(num_steps), config.out)
        return True


def read_input(config: SupervisedConfig, method: Method) -> tuple[list[list[SupervisedRow]], int]:
    """Return the examples, and the number of those that are too long; see ``read_examples``.

    Raises: BadInputError: model, dataset or an option cannot be used, or ``out`` has files.
    """
    check_new(config.out)
    check_verl_options(config.verl)
    return read_examples(config.dataset, method, read_model_bounds(config.model), config.optimizer.max_row_tokens)


class _Learner:
    """The trainer, with its examples and, for DPO, the log-probabilities of the first weights."""

    def __init__(
        self,
        trainer: SupervisedTrainer | LeadingSupervisedTrainer,
        config: SupervisedConfig,
        method: Method,
        examples: Sequence[Sequence[SupervisedRow]],
        num_steps: int,
    ) -> None:
        self._config, self._examples, self._num_steps = config, examples, num_steps
        self._rates = config.optimizer.learning_rate
        self.trainer = trainer
        rows = list(chain.from_iterable(examples))
        self._reference = self.trainer.sum_logprobs(rows).view(-1, 2) if method == "dpo" else None

    def make_step(self, step: int) -> SupervisedStep:
        rate = self._rates.value_at(step, self._num_steps)
        members = choose_examples(len(self._examples), self._config, step)
        rows = [row for member in members for row in self._examples[member]]
        if self._reference is None:
            metrics = self.trainer.imitate(rows, rate)
        else:
            metrics = self.trainer.prefer(rows, self._reference[members].flatten(), self._config.beta, rate)
        return SupervisedStep(
            step=step + 1,
            rows=[
                LearnedRow(trajectory_id=row.trajectory_id, group_id=row.group_id, num_tokens=sum(row.loss_mask))
                for row in rows
            ],
            num_steps=self._num_steps,
            learning_rate=rate,
            metrics=metrics,
        )


def choose_examples(num_examples: int, config: SupervisedConfig, step: int) -> list[int]:
    """Return the examples of a step: each once in an epoch, in an order that follows from seed and epoch alone."""
    epoch, place = divmod(step, -(-num_examples // config.batch_size))
    order = list(range(num_examples))
    random.Random(f"{config.seed} {epoch}").shuffle(order)
    return order[place * config.batch_size : (place + 1) * config.batch_size]


def _save(
    checkpoints: CheckpointDirectory,
    trainer: SupervisedTrainer | LeadingSupervisedTrainer,
    step: int,
    config: SupervisedConfig,
) -> None:
    checkpoints.save(Cursor(step=step, policy_version=None), trainer.save)
    checkpoints.keep_newest(config.keep.num_checkpoints)


def _make_plan(config: SupervisedConfig, method: Method, examples: Sequence[Sequence[SupervisedRow]]) -> _Plan:
    may_change = {"out": config.model, "dataset": config.model, "keep": RetentionConfig()}
    fixed = msgspec.structs.replace(config, **may_change)
    rows = (row for one in examples for row in one)
    parts = (part.tobytes() + b"|" for row in rows for part in (row.prompt_ids, row.response_ids, row.loss_mask))
    options = msgspec.json.encode(fixed, enc_hook=str).decode()
    dataset_hash = content_hash(b"".join(parts))
    return _Plan(method=method, config=options, dataset_hash=dataset_hash, parent=read_parent(config.model))


def _fix_plan(path: Path, plan: _Plan, checkpoint: Path | None) -> None:  # kept: the refusal by name
    """Write the plan; raise BadInputError if there is a checkpoint of another."""
    same = {msgspec.json.encode(one) for one in (plan, msgspec.structs.replace(plan, parent=UNSET))}
    if checkpoint is not None and (not path.is_file() or path.read_bytes() not in same):
        raise BadInputError(
            f"run {path.parent.name}: expected the configuration and dataset of its checkpoint {checkpoint}, found"
            " others; undo the change, or choose another run"
        )
    replace_file(path, [msgspec.json.encode(plan)])
