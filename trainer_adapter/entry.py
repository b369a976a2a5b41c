"""Training as one call: agent, tasks and model in, a trained policy out, all on this machine."""

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from agent_layer.dispatcher import parse_tasks
from agent_layer.errors import BadInputError
from agent_layer.health import StepProgress, progress_path, read_progress
from agent_layer.infra import make_private
from agent_layer.settings import Settings, load_settings
from trainer_adapter.config import (
    AlgorithmConfig,
    OptimizerConfig,
    RetentionConfig,
    RolloutConfig,
    SourceConfig,
    TrainConfig,
)
from trainer_adapter.launch import Job, run_job
from trainer_adapter.selection import TaskFilter
from trainer_adapter.tasks import TaskFile


class TrainOptions(TypedDict, total=False):
    """Settings and configuration sections of a run; all optional."""

    settings: Settings
    """Default: the settings of the environment."""
    slots: int
    """Concurrent rollouts; default 16."""
    seed: int
    filters: list[TaskFilter]
    rollouts: RolloutConfig
    algorithm: AlgorithmConfig
    optimizer: OptimizerConfig
    keep: RetentionConfig
    report: Callable[[StepProgress], None]
    """Called for each step, once its weights serve."""


def train(
    agent: str | Callable[..., object],
    tasks: Path | str | Iterable[Mapping[str, object]],
    scorer: str | Callable[..., object] | None = None,
    *,
    model: Path | str,
    steps: int,
    **options: Unpack[TrainOptions],
) -> list[StepProgress]:
    """Train a policy until its run has ``steps`` steps, from the newest checkpoint if there is one.

    Starts Redis, vLLM, the gateway, a worker and the trainer, each as a process, unless a setting names a running one.
    They end with this call.

    Args:
        agent: ``module:attribute`` of a coroutine function ``agent(task, rollout)``, a compiled LangGraph graph or an
            ``Environment``; functions and classes may also be given themselves.
        tasks: a file with one task per line, or tasks as mappings.
        scorer: ``module:function``, the function itself, or 'agent'; None: as each task says.
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
    tasks_path = settings.dir.absolute() / "runs" / settings.run / "tasks.jsonl"
    _write_tasks(tasks_path, tasks, scorer, settings.run)
    config = TrainConfig(
        model=Path(model).absolute(),
        tasks=[SourceConfig(path=tasks_path)],
        steps=steps,
        run=settings.run,
        seed=options.get("seed", 0),
        filters=options.get("filters", []),
        rollouts=options.get("rollouts", RolloutConfig()),
        algorithm=options.get("algorithm", AlgorithmConfig()),
        optimizer=options.get("optimizer", OptimizerConfig()),
        keep=options.get("keep", RetentionConfig()),
    )
    job = Job(config=config, target=import_path(agent), slots=options.get("slots", 16))
    path = progress_path(settings, settings.run)
    with run_job(settings, job) as running:
        running.wait(_follow_steps(path, options.get("report", lambda _: None)))
    return read_progress(path)


def import_path(target: str | Callable[..., object]) -> str:
    """Return the ``module:attribute`` that a worker imports.

    Raises: BadInputError: no other process could import it.
    """
    if isinstance(target, str):
        return target
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if module in (None, "__main__") or name is None or not name.isidentifier():
        raise BadInputError(
            f"agent or scorer {target!r}: expected something that another process can import by module and name, found"
            f" {module}:{name}; move it to the top of a module, or name it as 'module:attribute'"
        )
    return f"{module}:{name}"


def _write_tasks(
    path: Path, tasks: Path | str | Iterable[Mapping[str, object]], scorer: str | Callable[..., object] | None, run: str
) -> None:
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
    pending = path.with_suffix(".new")  # the tasks may be read from the file itself
    with pending.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
    pending.replace(path)


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from (line.removeprefix(codecs.BOM_UTF8).strip() for line in file if line.strip())


def _follow_steps(path: Path, report: Callable[[StepProgress], None]) -> Callable[[], None]:
    """Return a function that reports the steps that were done since its last call."""
    told = {step.step for step in read_progress(path)}

    def tell() -> None:
        for step in read_progress(path):
            if step.step not in told:
                told.add(step.step)
                report(step)

    return tell
