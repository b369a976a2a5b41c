"""Configuration of a training run: every option, its default, and the reading of configuration files.

A file is YAML, TOML or JSON, by its suffix; its sections are the records below. Paths in it are relative to it.
"""

import sys
from collections.abc import Callable, Iterable
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta

from agent_layer.errors import BadInputError
from agent_layer.health import HealthLimits, set_limits
from agent_layer.schema import Holdout, LengthRule, LongRows, Overlong, ShortGroupPolicy, check_name, read_yaml
from trainer_adapter.algorithms import AlgorithmConfig, Schedule, resolve_algorithm
from trainer_adapter.selection import (
    CURRICULA,
    FILTERS,
    RAMPS,
    Curriculum,
    LevelRamp,
    TaskFilter,
    UserCurriculum,
    UserFilter,
    UserRamp,
    spell_part,
)
from trainer_adapter.verl_keys import refuse_our_keys

__all__ = [
    "AlgorithmConfig",
    "ClusterConfig",
    "EvaluationConfig",
    "HeldOutConfig",
    "LoraConfig",
    "OptimizerConfig",
    "RetentionConfig",
    "RolloutConfig",
    "Schedule",
    "SourceConfig",
    "TrainConfig",
    "load_config",
    "write_config",
]

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
TrackerName: TypeAlias = Literal["tensorboard", "wandb", "mlflow", "clearml"]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Beta: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections: a misspelt option is an error."""


class _TasksConfig(_Section, frozen=True):
    """Tasks of a file, or of a task set by its name."""

    path: Path | None = None
    """File with one task on each line."""
    taskset: str | None = None
    """Name of a task set, or ``module:attribute``."""
    name: str | None = None
    """None: the name of the file without its suffix, or of the task set."""
    seed: Count = 0
    """Seed of a task set; another seed gives other tasks."""
    level: Count = 0
    """Level of a task set."""

    def __post_init__(self) -> None:
        """Check that it is one source."""
        if (self.path is None) == (self.taskset is None):
            raise ValueError("expected either path or taskset")

    @property
    def label(self) -> str:
        """Name in the mix, or of the rounds."""
        return self.name or self.taskset or Path(str(self.path)).stem


_Tasks = TypeVar("_Tasks", bound=_TasksConfig)
_Config = TypeVar("_Config")


class SourceConfig(_TasksConfig, frozen=True):
    """One source of the tasks that are trained."""

    weight: Annotated[float, Meta(ge=0)] = 1.0
    """Its share of the tasks is its weight by the sum of all; 0: none until the mix of the run is changed."""
    count: Positive = 1000
    """Tasks of a task set at each level; they are written into the run's directory."""
    ramp: LevelRamp | None = None
    """When a task set moves on from ``level`` to the next; None: never."""

    def __post_init__(self) -> None:
        """Check that it is one source."""
        super().__post_init__()
        if self.ramp is not None and self.taskset is None:
            raise ValueError("expected a ramp beside a taskset; a file has no levels")


class HeldOutConfig(_TasksConfig, frozen=True):
    """One set of held-out tasks; of a task set those of split ``eval``."""

    count: Positive | None = None
    """Most tasks; None: all of a file, 50 of a task set."""
    holdout: Holdout | None = None
    """``near``: near-duplicates are not trained either; None: as the task set declares."""
    repositories: list[str] = []
    """Repositories whose tasks are not trained, beside those that its tasks declare by the label ``repository``."""


class EvaluationConfig(_Section, frozen=True):
    """Rounds of rollouts on held-out tasks during training, which waits for them; each is of one policy version."""

    tasks: Annotated[list[HeldOutConfig], Meta(min_length=1)]
    """Each has rounds of its own. A path alone stands for one set with this path."""
    every_steps: Positive
    """A round follows each step whose number is a multiple of this."""
    at_start: bool = True
    """Whether the first weights are evaluated, too."""
    rollouts: Positive = 1
    """Rollouts of each task."""
    threshold: float = 1.0
    """Least reward of a rollout that passed."""
    temperature: Annotated[float, Meta(ge=0)] | None = None
    """Overrides the temperature of tasks and agents; None: theirs."""

    def __post_init__(self) -> None:
        """Check that each set has a name of its own."""
        if len({one.label for one in self.tasks}) < len(self.tasks):
            raise ValueError("expected sets of held-out tasks with different names")


Sources: TypeAlias = Annotated[list[SourceConfig], Meta(min_length=1)]
"""Sources; in a configuration file, a path alone stands for one source with this path."""


class RolloutConfig(_Section, frozen=True):
    """Rollouts that the trainer requests from workers."""

    groups_per_step: Positive | None = None
    """Groups of one update; None: as many as there are tasks."""
    group_size: Annotated[int, Meta(ge=2)] = 8
    """Usable rollouts of one group; with a curriculum, on average."""
    launch: Annotated[float, Meta(ge=1)] | None = None
    """Rollouts launched for each usable one, such as 1.25: the slowest are cancelled. This biases learning towards
    rollouts that end early: compare ``kept_seconds`` and ``surplus_seconds`` of the steps."""
    partial: ShortGroupPolicy | None = None
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
    curriculum: Curriculum | None = None
    """How the rollouts of a submission are shared among its tasks; None: evenly."""


class OptimizerConfig(_Section, frozen=True):
    """How gradients become new weights."""

    learning_rate: Schedule = Schedule(start=1e-6)
    minibatches: Positive = 1
    """Optimizer steps for each epoch of an update."""
    epochs: Positive = 1
    """Passes of an update over its samples."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    weight_decay: Annotated[float, Meta(ge=0)] = 0.01
    clip_grad: Annotated[float, Meta(gt=0)] = 1.0
    """Largest norm of gradients; ``.inf``: they are not clipped."""
    microbatch_tokens: Positive = 16384
    """Tokens per forward pass of a process; a longer sample has a pass of its own."""
    sequence_parallel: Positive = 1
    """Processes that share each row (Ulysses): each has a part of its tokens and, in attention, of its heads."""
    max_row_tokens: Positive | None = None
    """Longest row that is trained, prompt included; None: no limit."""
    long_rows: LongRows = "exclude"
    """What happens to a longer row. ``exclude``: its rollout is left out. ``cut_end``: its last tokens are not trained;
    the others keep their context, so their log-probabilities are exact."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of forward, backward and published weights; the optimizer's copy is always float32."""
    gradient_checkpointing: bool = False
    num_threads: Positive = 1
    """CPU threads of torch; more than one costs ten times the CPU where engine and workers share the cores."""

    def __post_init__(self) -> None:
        """Have a finite number for no limit, because JSON has no infinity."""
        if self.clip_grad == inf:
            msgspec.structs.force_setattr(self, "clip_grad", sys.float_info.max)


class LoraConfig(_Section, frozen=True):
    """Low-rank adapters, trained in place of the model's own weights, which stay as they are."""

    rank: Positive
    alpha: Positive = 16
    """An adapter counts alpha / rank."""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """Names of linear layers, such as ``[q_proj, v_proj]``; all-linear: all but the one that computes logits."""
    publish: Literal["merged", "adapter"] = "merged"
    """What engines get: whole weights, or the adapter alone, for engines that take one at run time."""


class RetentionConfig(_Section, frozen=True):
    """What stays on disk."""

    checkpoint_steps: Positive = 10
    """Steps between two checkpoints; the end and a stop of the run make one, too."""
    num_checkpoints: Positive = 2
    num_versions: Annotated[int, Meta(ge=2)] = 4
    """Published weights that are kept; at least the served ones and those before."""


class ClusterConfig(_Section, frozen=True):
    """What ``train --on ray`` needs beside the other sections."""

    mode: Literal["sync", "colocate_async", "separate_async"] | None = None
    """``sync``: rollouts and updates take turns. ``colocate_async``: rollouts pause at their next call during an
    update. ``separate_async``: engines have GPUs of their own, so that rollouts pause only while weights are sent.
    None: sync with ``rollouts.max_staleness: 0``, else colocate_async."""
    address: str | None = None
    """Ray cluster to join, HOST:PORT, or "auto" on one of its machines; it is left running. None: RAY_ADDRESS, else Ray
    starts on this machine, for this run."""
    wait_seconds: Annotated[float, Meta(ge=0)] = 300.0
    """Longest wait, at each start, for the machines that the run needs in the cluster at ``address``."""
    nodes: Positive = 1
    """Machines of the trained model."""
    gpus_per_node: Positive = 1
    """Processes of the trained model on each; without GPUs, processes on the CPU."""
    engine_gpus: Positive = 1
    """GPUs of all engines in mode ``separate_async``, beside those of the trained model, on any machines."""
    tensor_parallel: Positive = 1
    """GPUs of one engine."""
    engine_memory: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    """Share of a GPU's memory for its engine."""
    gpu_gigabytes: Positive | None = None
    """Memory of one GPU in units of 10^9 bytes, for a dry run on a machine without GPUs; None: looked up."""
    cpu_cache_gigabytes: Positive = 1
    """Memory for the cached prompts of an engine without a GPU."""
    max_model_len: Positive | None = None
    """Longest sequence of an engine; None: of the model."""
    restarts: Annotated[int, Meta(ge=0)] = 3
    """How often an engine, or else the whole trainer, is started again after it died, without a new step in between;
    0: the first death ends the run."""
    verl: dict[str, object] = {}
    """Any other key of veRL's ``main_ppo``, by its dotted name."""


class TrainConfig(_Section, frozen=True):
    """One training run."""

    model: Path
    """Directory with the first weights and the tokenizer, in Hugging Face's form."""
    tasks: Sources
    """Where tasks come from; several sources are mixed by their weights."""
    steps: Positive
    """Steps of the whole run, earlier starts included."""
    run: str | None = None
    """None: the setting AGENT_LAYER_RUN."""
    seed: int = 0
    """Seed of the order of the tasks, among others."""
    filters: list[TaskFilter] = []
    """A task is submitted when all of them admit it."""
    evaluation: EvaluationConfig | None = None
    """Evaluation while the run trains; None: none."""
    held_out: list[HeldOutConfig] = []
    """Sets that are not trained, beside those of ``evaluation``; a path alone stands for one set."""
    rollouts: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    lora: LoraConfig | None = None
    """None: all weights are trained."""
    keep: RetentionConfig = RetentionConfig()
    cluster: ClusterConfig | None = None
    """Cluster of ``train --on ray``; None: its defaults."""
    trackers: list[TrackerName] = []
    """Where each step's numbers go besides the progress file."""
    health: dict[str, HealthLimits | str | bool] = {}
    """Limits of the catalogue of ``agent_layer.health`` by name, such as ``forks: {warn: 0.1, stop: 0.5, steps: 3}``;
    'off' turns an entry off."""
    alarms: list[str] = []
    """Addresses, as Apprise writes them, that get what health finds; none: those of AGENT_LAYER_ALARM_URLS."""
    tool_parser: str = "auto"
    """vLLM's parser of tool calls, of the servers that this run starts: 'auto' for that of the model's family, a name,
    or 'none'."""
    reasoning_parser: str = "auto"
    """vLLM's parser of reasoning; the same words."""
    accept_shared_judge: bool = False
    """Whether tasks train whose scorer shares an interpreter with the judged code, which can then force its reward."""
    verl: dict[str, object] = {}
    """Keys of veRL without an option here, by its dotted names, such as
    ``{actor_rollout_ref.actor.optim.override_optimizer_config.eps: 1.0e-6}``."""

    @property
    def held_out_sets(self) -> list[HeldOutConfig]:
        """All sets whose tasks are not trained."""
        return [*(self.evaluation.tasks if self.evaluation else []), *self.held_out]

    def __post_init__(self) -> None:
        """Check the name of the run."""
        if self.run is not None:
            check_name(self.run, "run")

    @property
    def lengths(self) -> LengthRule:
        """What is trained of rollouts and rows that are too long."""
        optimizer = self.optimizer
        return LengthRule(
            overlong=self.rollouts.overlong, max_row_tokens=optimizer.max_row_tokens, long_rows=optimizer.long_rows
        )


def load_config(path: Path) -> TrainConfig:
    """Read a configuration file.

    Raises: BadInputError: no such file, an unknown option, health limit or key of veRL, or an ineffective value.
    """
    config = read_options(path, TrainConfig, _spell_out)
    try:
        resolve_algorithm(config.algorithm)
        _make_user_parts(config)
        set_limits(config.health)
        _refuse_without_effect(config)
        refuse_our_keys(config.verl)
        resolved = resolve_paths(config, path.parent)
        _refuse_trained(resolved)
    except BadInputError as error:
        raise BadInputError(f"configuration {path}: {error}") from error
    return resolved


def read_options(
    path: Path, kind: type[_Config], spell_out: Callable[[dict[str, object]], dict[str, object]] = lambda one: one
) -> _Config:
    """Return what a file says as a record, its paths as they are written; see ``load_config`` for its errors."""
    decode = {".json": msgspec.json.decode, ".toml": msgspec.toml.decode}.get(path.suffix, read_yaml)
    try:
        options = _read_section(decode(path.read_bytes()))
        _refuse_infinite(options)
        return msgspec.convert(spell_out(options), kind, dec_hook=_read_path)
    except BadInputError as error:
        raise BadInputError(f"configuration {path}: {error}") from error
    except OSError as error:
        raise BadInputError(f"configuration {path}: expected a readable file, found {error}; check the path") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(
            f"configuration {path}: expected the options of a training run, found: {error}; see"
            " 'agent-layer train --help'"
        ) from error


def _refuse_infinite(value: object, name: str = "") -> None:
    """Raise for the first number that is not finite: it passes bounds, and a run would end in its arithmetic."""
    if isinstance(value, float) and not isfinite(value) and (name, value) != ("optimizer.clip_grad", inf):
        raise BadInputError(f"{name}: expected a finite number, found {value}; correct it, or leave the option out")
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        inner = cast("dict[object, object]", value).items()
    elif isinstance(value, list):
        inner = enumerate(cast("list[object]", value))
    for key, one in inner:
        _refuse_infinite(one, f"{name}.{key}" if name else str(key))


def _make_user_parts(config: TrainConfig) -> None:  # kept: making them finds what is wrong
    """Raise for the first filter, curriculum or ramp of users that there is not."""
    for one in (*config.filters, config.rollouts.curriculum, *(source.ramp for source in config.tasks)):
        if isinstance(one, UserCurriculum | UserFilter | UserRamp):
            _ = one.part


def _refuse_without_effect(config: TrainConfig) -> None:
    """Raise for an option that changes nothing beside the others."""
    if config.optimizer.long_rows != "exclude" and config.optimizer.max_row_tokens is None:
        raise BadInputError("optimizer.long_rows: no row is too long without max_row_tokens; set that or leave it out")
    if config.algorithm.distill is None:
        return
    if (temperature := config.rollouts.temperature) not in (None, 1):
        raise BadInputError(
            f"algorithm.distill: a teacher answers at temperature 1, but rollouts.temperature is {temperature:g}; set"
            " that to 1"
        )
    if config.rollouts.extra_groups:
        raise BadInputError(
            "rollouts.extra_groups: with algorithm.distill groups of equal rewards teach, so none is added for them;"
            " leave it out"
        )


def _refuse_trained(config: TrainConfig) -> None:  # kept: its name says what the condition checks
    """Raise for a file that is both trained and held out."""
    held_out = {one.path.resolve() for one in config.held_out_sets if one.path}
    if trained := [one.path for one in config.tasks if one.path and one.path.resolve() in held_out]:
        raise BadInputError(
            f"evaluation, held_out: expected held-out tasks, found {trained[0].name}, which is trained; hold out other"
            " tasks, or measure those that are trained with 'agent-layer eval'"
        )


def read_held_out_option(option: object) -> list[HeldOutConfig]:
    """Return held-out sets that the options of another trainer name, spelt as ``held_out`` of a configuration.

    Args: option: a path, a list of sets, or None: nothing is held out.

    Raises: BadInputError: it is something else.
    """
    try:
        spelled = _spell_tasks({"held_out": option}, "held_out")["held_out"]
        return msgspec.convert(spelled or [], list[HeldOutConfig], dec_hook=_read_path)
    except msgspec.ValidationError as error:
        raise BadInputError(
            f"held_out: expected a path, or sets as 'agent-layer train' takes them, found: {error}; write for example"
            " [{taskset: repair, count: 50}]"
        ) from error


def write_config(config: TrainConfig, path: Path) -> None:
    """Write a configuration as JSON, for ``load_config`` to read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config, enc_hook=str)))


def _read_path(kind: type[object], value: object) -> object:
    return Path(str(value)) if kind is Path else value


def _spell_out(options: dict[str, object]) -> dict[str, object]:
    """Return the options with what a file may leave out: the source of a path alone, the name of a curriculum."""
    options = _spell_tasks(_spell_tasks(options), "held_out")
    if options.get("evaluation") is not None:
        options = {**options, "evaluation": _spell_tasks(_read_section(options["evaluation"]))}
    rollouts = _read_section(options.get("rollouts", {}))
    if rollouts.get("curriculum") is not None:
        curriculum = {"name": "success_share", **_read_section(rollouts["curriculum"])}
        options = {**options, "rollouts": {**rollouts, "curriculum": spell_part(CURRICULA, curriculum)}}
    if options.get("filters"):
        filters = msgspec.convert(options["filters"], list[dict[str, object]])
        options = {**options, "filters": [spell_part(FILTERS, one) for one in filters]}
    return options


def _spell_tasks(section: dict[str, object], key: str = "tasks") -> dict[str, object]:
    tasks = section.get(key)
    if isinstance(tasks, str):
        return {**section, key: [{"path": tasks}]}
    sources = [_read_section(one) for one in msgspec.convert(tasks or [], list[object])]
    spelled = [
        {**one, "ramp": spell_part(RAMPS, _read_section(one["ramp"]))} if one.get("ramp") else one for one in sources
    ]
    return {**section, key: spelled} if sources else section


def _read_section(section: object) -> dict[str, object]:
    return msgspec.convert(section, dict[str, object])


def resolve_paths(config: TrainConfig, base: Path) -> TrainConfig:
    """Return the configuration with its relative paths taken from this directory."""
    evaluation = config.evaluation
    return msgspec.structs.replace(
        config,
        model=base / config.model,
        tasks=[_resolve_path(one, base) for one in config.tasks],
        held_out=[_resolve_path(one, base) for one in config.held_out],
        evaluation=evaluation
        and msgspec.structs.replace(evaluation, tasks=[_resolve_path(one, base) for one in evaluation.tasks]),
    )


def _resolve_path(tasks: _Tasks, base: Path) -> _Tasks:
    return tasks if tasks.path is None else msgspec.structs.replace(tasks, path=base / tasks.path)
