"""Configuration of a training run: every option, its default, and the reading of configuration files.

A file is YAML, TOML or JSON, by its suffix; its sections are the records below. Paths in it are relative to it.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from agent_layer.errors import BadInputError
from agent_layer.health import HealthLimits, set_limits
from agent_layer.schema import LengthRule, LongRows, Overlong, Partial
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.schedule import Schedule

__all__ = [
    "AlgorithmConfig",
    "CurriculumConfig",
    "OptimizerConfig",
    "RetentionConfig",
    "RolloutConfig",
    "Schedule",
    "TrainConfig",
    "load_config",
    "write_config",
]

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections: a misspelt option is an error."""


class CurriculumConfig(_Section, frozen=True):
    """How the rollouts of a step are shared among its tasks; see ``allot_rollouts``."""

    floor: Annotated[float, Meta(gt=0)] = 0.3
    """Weight of a task that always succeeds; the larger, the more even the shares."""
    minimum: Annotated[int, Meta(ge=2)] = 2
    """Fewest rollouts of a task."""
    memory: Share = 0.7
    """Weight of a task's old success rate when new rollouts arrive."""


class RolloutConfig(_Section, frozen=True):
    """Rollouts that the trainer requests from workers."""

    groups_per_step: Positive | None = None
    """Groups of one update; None: one of each task."""
    group_size: Annotated[int, Meta(ge=2)] = 8
    """Usable rollouts of one group; with a curriculum, on average."""
    launch: Annotated[float, Meta(ge=1)] | None = None
    """Rollouts launched for each usable one, such as 1.25: the slowest are cancelled. This biases learning towards
    rollouts that end early: compare ``kept_seconds`` and ``surplus_seconds`` of the steps."""
    partial: Partial | None = None
    """What happens to a group with too few usable rollouts; None: as its task says, else it is delivered."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    """Priority among the rollouts of all runs; None: as tasks say, else 0. Eval tasks have -1 by default."""
    max_staleness: Count = 1
    """Updates by which sampling weights may be older than the trained ones; 0 is on-policy."""
    ask_ahead_steps: Count = 0
    """Steps whose groups are submitted before their policy version exists, so that no worker waits for the trainer; 0:
    only groups that may begin at once. A curriculum shares rollouts out at submission, so it reacts this many steps
    later."""
    pause_at_switch: bool = False
    """Pause resumable agents at their next step while engines load new weights; they resume afterwards."""
    extra_groups: Count | None = None
    """Groups that a step may add when some of its groups have equal rewards, and so teach nothing; None: 0, and nine
    times those of a step with ``algorithm.name: dapo`` (dynamic sampling)."""
    overlong: Overlong = "score"
    """What a rollout counts as that ran out of turns, tokens, time or context, or whose last answer was cut off at its
    longest. ``score``: its reward counts, its tokens are trained. ``mask``: its reward counts in the baseline, its
    tokens are not trained (DAPO's overlong filtering). ``null``: its reward is unknown."""
    temperature: Annotated[float, Meta(gt=0)] | None = None
    """Overrides the temperature of tasks and agents; None: theirs."""
    success_above: float = 0.0
    """A rollout with a reward above this counts as a success, in reports and for the curriculum."""
    patience_seconds: Annotated[float, Meta(gt=0)] = 900.0
    """The run stops when no group closes for this many seconds."""
    curriculum: CurriculumConfig | None = None


class OptimizerConfig(_Section, frozen=True):
    """How gradients become new weights."""

    learning_rate: Schedule = Schedule(start=1e-6)
    minibatches: Positive = 1
    """Optimizer steps for each epoch of an update."""
    epochs: Positive = 1
    """Passes of an update over its samples."""
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: Annotated[float, Meta(ge=0)] = 0.01
    clip_grad: Annotated[float, Meta(gt=0)] = 1.0
    microbatch_tokens: Positive = 16384
    """Tokens per forward pass; a longer sample has a pass of its own."""
    max_row_tokens: Positive | None = None
    """Longest row that is trained, prompt included; None: no limit."""
    long_rows: LongRows = "exclude"
    """What happens to a longer row. ``exclude``: its rollout is left out. ``cut_end``: its last tokens are not trained;
    the others keep their context, so their log-probabilities are exact."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of forward, backward and published weights; the optimizer's copy is always float32."""
    gradient_checkpointing: bool = False
    num_threads: Positive = 1
    """CPU threads of torch; more than one costs ten times the CPU where engine and workers share the cores."""


class RetentionConfig(_Section, frozen=True):
    """What stays on disk."""

    checkpoint_steps: Positive = 10
    """Steps between two checkpoints; the end and a stop of the run make one, too."""
    num_checkpoints: Positive = 2
    num_versions: Annotated[int, Meta(ge=2)] = 4
    """Published weights that are kept; at least the served ones and those before."""


class TrainConfig(_Section, frozen=True):
    """One training run."""

    model: Path
    """Directory with the first weights and the tokenizer, in Hugging Face's form."""
    tasks: Path
    """File with one task on each line."""
    steps: Positive
    """Steps of the whole run, earlier starts included."""
    run: str | None = None
    """None: the setting AGENT_LAYER_RUN."""
    seed: int = 0
    rollouts: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    keep: RetentionConfig = RetentionConfig()
    health: dict[str, HealthLimits | str | bool] = {}
    """Limits of the catalogue of ``agent_layer.health`` by name, such as ``forks: {warn: 0.1, stop: 0.5, steps: 3}``;
    'off' turns an entry off."""

    @property
    def lengths(self) -> LengthRule:
        """What is trained of rollouts and rows that are too long."""
        optimizer = self.optimizer
        return LengthRule(
            overlong=self.rollouts.overlong, max_row_tokens=optimizer.max_row_tokens, long_rows=optimizer.long_rows
        )


def load_config(path: Path) -> TrainConfig:
    """Read a configuration file.

    Raises: BadInputError: no such file, an unknown option or health limit, or an invalid or ineffective value.
    """
    decode = {".json": msgspec.json.decode, ".toml": msgspec.toml.decode}.get(path.suffix, msgspec.yaml.decode)
    try:
        config = decode(path.read_bytes(), type=TrainConfig, dec_hook=_read_path)
    except OSError as error:
        raise BadInputError(f"configuration {path}: expected a readable file, found {error}; check the path") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"configuration {path}: expected the options of a training run, found: {error}; see"
            " 'agent-layer train --help'"
        ) from error
    try:
        resolve_algorithm(config.algorithm)
        set_limits(config.health)
        _refuse_without_effect(config)
    except BadInputError as error:
        raise BadInputError(f"configuration {path}: {error}") from error
    base = path.parent
    return msgspec.structs.replace(config, model=base / config.model, tasks=base / config.tasks)


def _refuse_without_effect(config: TrainConfig) -> None:
    """Raise for an option that changes nothing beside the others."""
    if config.optimizer.long_rows != "exclude" and config.optimizer.max_row_tokens is None:
        raise BadInputError("optimizer.long_rows: no row is too long without max_row_tokens; set that or leave it out")


def write_config(config: TrainConfig, path: Path) -> None:
    """Write a configuration as JSON, for ``load_config`` to read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config, enc_hook=str)))


def _read_path(kind: type[object], value: object) -> object:
    return Path(str(value)) if kind is Path else value
