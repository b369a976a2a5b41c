"""Training as one call: agent, tasks and model in, a trained policy out, all on this machine."""

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict, Unpack, cast

import msgspec

from agent_layer.dispatcher import parse_tasks
from agent_layer.errors import BadInputError
from agent_layer.health import HealthLimits, ProgressReader, StepProgress, progress_path
from agent_layer.infra import make_private, replace_file
from agent_layer.settings import Settings, load_settings
from envs.commands import CommandOptions, as_arguments
from envs.harnesses import PREFIX, check_harness
from trainer_adapter.config import (
    AlgorithmConfig,
    EvaluationConfig,
    LoraConfig,
    OptimizerConfig,
    RetentionConfig,
    RolloutConfig,
    SourceConfig,
    TrainConfig,
)
from trainer_adapter.selection import TaskFilter
from trainer_adapter.start.job import Job, run_job
from trainer_adapter.tasks import TaskFile


class TrainOptions(TypedDict, total=False):
    """Settings and configuration sections of a run; all optional."""

    settings: Settings
    """Default: the settings of the environment."""
    slots: int
    """Concurrent rollouts; default 16."""
    command: CommandOptions
    """How attempts of a command or a harness run: what they begin with, what is kept of them, in which sandbox."""
    seed: int
    filters: list[TaskFilter]
    evaluation: EvaluationConfig
    rollouts: RolloutConfig
    algorithm: AlgorithmConfig
    optimizer: OptimizerConfig
    lora: LoraConfig | None
    keep: RetentionConfig
    health: dict[str, HealthLimits | str | bool]
    tool_parser: str
    reasoning_parser: str
    """Parsers of the vLLM that is started; default 'auto', that of the model's family."""
    verl: dict[str, object]
    unchecked: bool
    """Whether tasks of a set train that failed ``tasksets check``, or never ran it; default False."""
    accept_shared_judge: bool
    """Whether tasks train whose scorer shares an interpreter with the judged code; default False."""
    report: Callable[[StepProgress], None]
    """Called for each step, once its weights serve."""


def train(
    agent: object,
    tasks: Path | str | Iterable[Mapping[str, object]],
    scorer: object = None,
    *,
    model: Path | str,
    steps: int,
    **options: Unpack[TrainOptions],
) -> list[StepProgress]:
    """Train a policy until its run has ``steps`` steps, from the newest checkpoint if there is one.

    Starts Redis, vLLM, the gateway, a worker and the trainer, each as a process, unless a setting names a running one.
    They end with this call.

    Args:
        agent: a compiled LangGraph graph, a coroutine function ``agent(task, rollout)`` or an ``Environment`` class,
            or its ``module:attribute``. Workers import it: it is at the top of a module, or of the program that calls.
            A list is a command: program and arguments. ``harness:NAME`` is an installed coding agent, which runs in a
            sandbox.
        tasks: a file with one task per line, or tasks as mappings.
        scorer: a function, its ``module:function``, or 'agent'; None: as each task says.
        model: directory with the first weights and the tokenizer.
        steps: of the whole run, earlier calls included.
        options: see ``TrainOptions`` and ``TrainConfig``.

    Returns:
        all steps of the run, oldest first.

    Raises:
        BadInputError: agent, scorer or a task cannot be used.
        AgentLayerError: the trainer or a process that it needs ended early; the message contains the reason.
            Called again, the run goes on.
    """
    settings = options.get("settings") or load_settings()
    command = list_command(agent, options.get("command"))
    check_harness(settings, agent, options.get("command"))
    tasks_path = settings.dir.absolute() / "runs" / settings.run / "tasks.jsonl"
    _write_tasks(tasks_path, tasks, scorer, settings.run)
    config = TrainConfig(
        model=Path(model).absolute(),
        tasks=[SourceConfig(path=tasks_path)],
        steps=steps,
        run=settings.run,
        seed=options.get("seed", 0),
        filters=options.get("filters", []),
        evaluation=options.get("evaluation"),
        rollouts=options.get("rollouts", RolloutConfig()),
        algorithm=options.get("algorithm", AlgorithmConfig()),
        optimizer=options.get("optimizer", OptimizerConfig()),
        lora=options.get("lora"),
        keep=options.get("keep", RetentionConfig()),
        health=options.get("health", {}),
        tool_parser=options.get("tool_parser", "auto"),
        reasoning_parser=options.get("reasoning_parser", "auto"),
        accept_shared_judge=options.get("accept_shared_judge", False),
        verl=options.get("verl", {}),
    )
    job = Job(
        config=config,
        target="" if command else import_path(agent),
        command=command,
        slots=options.get("slots", 16),
        unchecked=options.get("unchecked", False),
    )
    return train_with_worker(settings, job, options.get("report", lambda _: None))


def train_with_worker(
    settings: Settings,
    job: Job,
    report: Callable[[StepProgress], None],
    report_phase: Callable[[str], None] = lambda _: None,
) -> list[StepProgress]:
    """Run a job with all that it needs until its trainer has finished; return all steps of the run, oldest first.

    Args:
        settings: locations; ``settings.run`` is the run.
        job: what to train, and with which agent.
        report: receives each new step.
        report_phase: receives what the start waits for.

    Raises:
        BadInputError: the agent cannot run here.
        AgentLayerError: the trainer or a process that it needs ended early.
    """
    progress = ProgressReader(progress_path(settings, settings.run))
    reported = {step.step for step in progress.read()}

    def report_new() -> None:
        for step in progress.read_on():
            if step.step not in reported:
                reported.add(step.step)
                report(step)

    with run_job(settings, job, report_phase) as running:
        running.wait(report_new)
    return progress.read()


def list_command(agent: object, options: CommandOptions | None) -> list[str]:
    """Return the options and words with which a worker runs a command or a harness; empty: the agent is neither.

    Raises: BadInputError: options of a command for another agent, or words that are no texts.
    """
    if isinstance(agent, str) and agent.startswith(PREFIX):
        return [*as_arguments(options or CommandOptions()), agent]
    if not isinstance(agent, list):
        if options is not None:
            raise BadInputError(
                f"train: 'command' is for an agent that is a command or a harness, found {agent!r}; pass a list, or"
                f" '{PREFIX}NAME'"
            )
        return []
    words = cast("list[object]", agent)
    if not words or not all(isinstance(word, str) for word in words):
        raise BadInputError(
            f"train: expected a command as a list of texts, found {agent!r}; write program and arguments"
        )
    return [*as_arguments(options or CommandOptions()), "--", *map(str, words)]


def import_path(target: object) -> str:
    """Return the ``module:attribute`` by which a worker imports an agent or scorer.

    Args: target: the path itself, what has a module and a name, or a global of the program that runs.

    Raises: BadInputError: no other process could import it.
    """
    if isinstance(target, str):
        return target
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if name is None or module == "__main__":
        module, name = _program(), _global_name(target)
    if module is None or name is None or not name.isidentifier():
        raise BadInputError(
            f"agent or scorer {target!r}: expected something that another process can import by module and name, found"
            f" {module}:{name}; move it to the top of a module below the present directory, or name it as"
            " 'module:attribute'"
        )
    return f"{module}:{name}"


def _program() -> str | None:
    """Return the name by which other processes import the program that runs, if they can from this directory."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m
        return main.__spec__.name
    path = Path(getattr(main, "__file__", None) or "/").absolute()
    if path.suffix != ".py" or not path.is_relative_to(Path.cwd()):
        return None
    parts = path.relative_to(Path.cwd()).with_suffix("").parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None


def _global_name(target: object) -> str | None:
    """Return the name of a global of the program that runs."""
    return next((name for name, found in vars(sys.modules["__main__"]).items() if found is target), None)


def _write_tasks(path: Path, tasks: Path | str | Iterable[Mapping[str, object]], scorer: object, run: str) -> None:
    """Check the tasks, and write them to the file that the trainer reads."""
    if isinstance(tasks, Path | str):
        TaskFile(Path(tasks), run=run)  # checks each line
        lines = _read_lines(Path(tasks))
    else:
        lines = [msgspec.json.encode(task) for task in tasks]
        parse_tasks(lines, subject="task", run=run)
    if scorer is not None:
        named = {"scorer": import_path(scorer)}
        lines = (msgspec.json.encode(msgspec.json.decode(line) | named) for line in lines)
    make_private(path.parent)
    replace_file(path, (line + b"\n" for line in lines))  # the tasks may be read from the file itself


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from (line.removeprefix(codecs.BOM_UTF8).strip() for line in file if line.strip())
