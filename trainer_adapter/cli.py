"""Commands of this package: ``train``, ``replay``, which rebuilds what was trained, ``checkpoint``, ``new model``."""

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from agent_layer.engines import get_policy
from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError
from agent_layer.health import Restart, StepProgress
from agent_layer.infra import install_command
from agent_layer.schema import PolicyVersion, TrainedBatch
from agent_layer.settings import Settings
from agent_layer.store import list_batches, open_store
from agent_layer.view import link_to
from envs.commands import CommandFlags, as_arguments, take_command_flags
from envs.harnesses import PREFIX, check_harness
from envs.tasksets import check_judges, check_trainable
from trainer_adapter.config import TrainConfig, load_config
from trainer_adapter.data import Replay, rebuild_batch
from trainer_adapter.loop import CheckpointDirectory
from trainer_adapter.start import HarnessWorker, Job, list_command, open_page, plan_run, train_with_worker, write_plan

if TYPE_CHECKING:
    from trainer_adapter.tasks import TaskSource

Run = Annotated[str | None, typer.Option(help="Else AGENT_LAYER_RUN.")]


@take_command_flags
def train(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="YAML, TOML or JSON file; every knob is in trainer_adapter/config.py.")
    ],
    *,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Train on task sets that failed 'tasksets check', or never ran it.")
    ] = False,
    accept_shared_judge: Annotated[
        bool,
        typer.Option(
            "--accept-shared-judge", help="Train on tasks whose judged code could force its reward, such as SWE tasks."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, its memory and what is missing; start nothing.")
    ] = False,
    on: Annotated[
        Literal["ray"] | None,
        typer.Option(help="Where veRL's workers and its own vLLM servers run; without it, inside this process."),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1, help="Share the model among processes of this machine, a GPU each; on Ray 'cluster' says it."
        ),
    ] = 1,
    tool_parser: Annotated[
        str | None,
        typer.Option(metavar="NAME|auto|none", help="Of the vLLM servers that --on ray starts, as 'up' takes it."),
    ] = None,
    reasoning_parser: Annotated[
        str | None, typer.Option(metavar="NAME|auto|none", help="The same for reasoning.")
    ] = None,
    method: Annotated[
        Literal["sft", "dpo"] | None,
        typer.Option(help="Train on a dataset of 'store export sft' or 'pairs', without rollouts: a warm start."),
    ] = None,
    run: Annotated[str | None, typer.Option(help="Else 'run' of the configuration, else AGENT_LAYER_RUN.")] = None,
    no_view: Annotated[bool, typer.Option("--no-view", help="Open no page ('agent-layer view').")] = False,
    slots: Annotated[
        int | None, typer.Option(min=1, show_default="16", help="Rollouts at the same time, with --harness.")
    ] = None,
    flags: CommandFlags,
) -> None:
    """Train a policy on the rollouts of running workers; continue from the newest checkpoint.

    Needs a gateway with a vLLM engine ('agent-layer up') and a worker ('agent-layer work'). Ctrl-C ends it after the
    current update, with a checkpoint; a second Ctrl-C ends it at once. A run that is not healthy warns and stops:
    'agent-layer health --catalogue' lists what is looked at.

    With --harness it starts all of that itself, as trainer_adapter.train does: an engine with the newest weights, a
    gateway, and a worker that runs the coding agent in sandboxes (unless --box none). What the settings name is used.

    With --on ray, veRL's main_ppo trains on Ray and starts its own vLLM servers, which answer the gateway's calls:
    start the gateway with 'agent-layer serve --engines-later'. The section 'cluster' of the configuration has options;
    'cluster.address', or RAY_ADDRESS, joins a Ray cluster of several machines.

    With --processes 2, or below 'torchrun -m agent_layer.cli', processes share model and rows; the first runs the loop.
    The update is that of one process. A checkpoint fits the number of processes that wrote it.

    With --method the file has model, dataset and out, a new directory that the next training takes as its 'model';
    every knob is in trainer_adapter/supervised/config.py. It needs no engine, gateway or worker; --processes applies.

    With --dry-run the exit status is 0 if it could start, and 2 if something is missing.

        agent-layer train run.yaml
        agent-layer train run.yaml --harness codex --workdir repo@HEAD
        agent-layer train --method sft warm.yaml
    """
    settings: Settings = context.obj
    worker = _read_worker(flags, slots)
    if method is not None:
        return _train_supervised(
            *(settings, config, method, processes),
            {
                "--on": on,
                "--harness": worker,
                "--dry-run": dry_run,
                "--unchecked": unchecked,
                "--accept-shared-judge": accept_shared_judge,
                "--tool-parser": tool_parser,
                "--reasoning-parser": reasoning_parser,
            },
        )
    parsers = {
        name: parser
        for name, parser in (("tool_parser", tool_parser), ("reasoning_parser", reasoning_parser))
        if parser is not None
    }
    if parsers and not on and worker is None:
        typer.echo("train: without --on ray it starts no vLLM; the parsers are those of 'agent-layer up'", err=True)
    loaded = msgspec.structs.replace(load_config(config.absolute()), **parsers)
    loaded = msgspec.structs.replace(
        loaded, run=run or loaded.run, accept_shared_judge=accept_shared_judge or loaded.accept_shared_judge
    )
    if dry_run:
        plan = plan_run(
            *(loaded, settings), unchecked=unchecked, on_ray=on == "ray", num_ranks=processes, worker=worker
        )
        typer.echo("\n".join(write_plan(plan)))
        raise typer.Exit(2 if plan.missing else 0)
    if worker is not None:
        job = Job(
            config=loaded,
            command=list_command(worker.agent, worker.options),
            slots=slots or Job.slots,
            unchecked=unchecked,
            on_ray=on == "ray",
            num_processes=processes,
        )
        check_harness(settings, worker.agent, worker.options)
        return _train_with_worker(settings, job, has_page=not no_view)
    try:
        from trainer_adapter.loop import stop_on_signals  # noqa: PLC0415  # torch takes seconds
        from trainer_adapter.start import run_rank, train_on_ranks  # noqa: PLC0415

        check = partial(_check_input, loaded, settings, processes, unchecked=unchecked)
        if not on and run_rank(loaded, processes, sys.argv[1:], check=check):
            return None
        sources = _open_sources(loaded, settings, unchecked=unchecked)
        from trainer_adapter.start import train_on_ray  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _needs_torch("train", error) from error
    page = nullcontext() if no_view else open_page(settings, loaded.run or settings.run, partial(typer.echo, err=True))
    with page, stop_on_signals() as stop:
        train = partial(train_on_ray, say=partial(typer.echo, err=True)) if on else train_on_ranks
        done = train(loaded, settings, stop, _show_steps(), sources=sources)
    typer.echo(f"{len(done)} steps done; 'agent-layer train {config}' goes on where this ended")
    return None


def _train_supervised(
    settings: Settings, path: Path, method: Literal["sft", "dpo"], processes: int, others: dict[str, object]
) -> None:
    if given := [name for name, value in others.items() if value]:
        raise BadInputError(f"train: --method {method} trains on this machine alone, found {given[0]}; leave it out")
    try:
        from trainer_adapter.loop import stop_on_signals  # noqa: PLC0415  # torch takes seconds
        from trainer_adapter.start import run_rank, train_supervised_on_ranks  # noqa: PLC0415
        from trainer_adapter.supervised import load_supervised, read_input  # noqa: PLC0415
        from trainer_adapter.verl import SupervisedTrainer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _needs_torch("train", error) from error
    config = load_supervised(path.absolute(), method)
    check = partial(read_input, config, method)
    if run_rank(config.as_training(1), processes, sys.argv[1:], SupervisedTrainer, check=check):
        return
    with stop_on_signals() as stop:
        is_done = train_supervised_on_ranks(
            config, settings, method, stop, lambda step: typer.echo(str(step)), partial(typer.echo, err=True)
        )
    if is_done:
        typer.echo(f"the model is in {config.out}; name it as 'model' of the next training")
    else:
        typer.echo(f"stopped; 'agent-layer train --method {method} {path}' goes on where this ended")


def _read_worker(flags: CommandFlags, slots: int | None) -> HarnessWorker | None:
    """Return the worker that the options ask for; None: workers run elsewhere.

    Raises: BadInputError: options of a worker without one.
    """
    options = flags.read(is_harness=flags.harness is not None)
    if flags.harness is not None:
        return HarnessWorker(f"{PREFIX}{flags.harness}", options)
    given = [*as_arguments(options), *([f"--slots={slots}"] if slots is not None else [])]
    if given:
        raise BadInputError(f"train: {given[0]} is for --harness, found none; a worker that runs already has its own")
    return None


def _train_with_worker(settings: Settings, job: Job, *, has_page: bool) -> None:
    settings = settings.model_copy(update={"run": job.config.run or settings.run})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    page = open_page(settings, settings.run, partial(typer.echo, err=True)) if has_page else nullcontext()
    with page:
        done = train_with_worker(settings, job, _show_steps())
    typer.echo(f"{len(done)} steps done; the same command goes on where this ended")


def _show_steps() -> Callable[[StepProgress | Restart], None]:
    """Return what prints each step, and each finding of its health when it is new; not with rich: no word is markup."""
    warned: set[str] = set()

    def show(progress: StepProgress | Restart) -> None:
        typer.echo(str(progress))
        if isinstance(progress, Restart):
            return
        for finding in progress.health:
            if finding.name not in warned:
                typer.echo(f"{finding.level}: {finding}")
        warned.clear()
        warned.update(finding.name for finding in progress.health)

    return show


def _check_input(config: TrainConfig, settings: Settings, processes: int, *, unchecked: bool) -> None:
    from trainer_adapter.loop import check_run  # noqa: PLC0415  # torch takes seconds

    _open_sources(config, settings, unchecked=unchecked)
    check_run(config, settings, processes)


def _open_sources(config: TrainConfig, settings: Settings, *, unchecked: bool) -> "list[TaskSource]":
    from trainer_adapter.tasks import open_training_sources  # noqa: PLC0415  # numpy comes with torch

    sources = open_training_sources(config, settings)
    tasks = [task for source in sources for task in source.read_first_tasks()]
    if not unchecked:
        check_trainable(settings.dir, tasks, (source.file_set for source in sources))
    if not config.accept_shared_judge:
        check_judges(tasks)
    return sources


_OUT = "Directory for the batches, one msgpack file each; none for a batch with deleted rollouts."


def replay(
    context: typer.Context,
    *,
    run: Run = None,
    step: Annotated[int | None, typer.Option(min=1, help="This update only; the first is 1.")] = None,
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
) -> None:
    """Rebuild each training batch of a run and compare it with what was trained, byte for byte.

    What the update computed for each token is compared, too: advantages and masks with those that follow from the
    batch; each token must have a log-probability. The last update lacks all of it when its trainer was killed.
    Later judgements change nothing. When a step was trained again after a kill, the later batch is rebuilt: the weights
    that learned from the earlier one are gone. Deleted rollouts are counted, all others compared.
    """
    settings: Settings = context.obj
    store = open_store(settings)
    differences: list[str] = []
    records = list_batches(store.redis, store.keys, run or settings.run)
    for record in _choose(records, run or settings.run, step):
        replayed = _expect_tokens(rebuild_batch(record, store.get), is_last=record == records[-1])
        differences += replayed.differences
        typer.echo(_replay_line(replayed, get_policy(store.redis, store.keys, record.run, record.policy_version)))
        if out is not None and not record.num_deleted:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"step-{record.step:06d}.msgpack").write_bytes(replayed.content)
    shown = run or settings.run
    if link := link_to(settings, "run", shown) if step is None else link_to(settings, "update", shown, step):
        typer.echo(f"view: {link}", err=True)
    if differences:
        raise CorruptRecordError(
            f"replay: expected what was trained, found {len(differences)} differences; the first: {differences[0]};"
            " 'agent-layer store check' tells whether bytes are damaged"
        )


def _choose(records: Sequence[TrainedBatch], run: str, step: int | None) -> list[TrainedBatch]:
    if chosen := [record for record in records if step in (None, record.step)]:
        return chosen
    subject = f"run {run!r}" if step is None else f"step {step} of run {run!r}"
    raise NotFoundError(
        f"{subject}: expected the record of what was trained, found none; check the name, or run 'agent-layer store"
        " reindex' if the run is older than the index"
    )


def _expect_tokens(replayed: Replay, *, is_last: bool) -> Replay:
    """Return the replay, with a difference when an update that others followed kept nothing of what it computed."""
    if replayed.has_tokens is not False or is_last:
        return replayed
    record = replayed.record
    missing = f"step {record.step} of run {record.run}: expected what the update computed, found nothing of it"
    return msgspec.structs.replace(replayed, differences=[*replayed.differences, missing])


def _replay_line(replayed: Replay, policy: PolicyVersion | None) -> str:
    record = replayed.record
    weights = f" weights {policy.weights_hash}" if policy and policy.weights_hash else ""
    num_rollouts = len(record.rollouts) + record.num_deleted
    counts = f"{num_rollouts:4d} rollouts {record.num_samples:4d} samples {record.batch_hash}"
    verdict = "differs" if replayed.differences else "identical"
    if record.num_deleted:
        verdict = f"deleted: {record.num_deleted} rollouts, the rest {verdict}"
    if replayed.has_tokens is False and not replayed.differences:
        verdict += ", its update was not completed"
    line = f"step {record.step:4d}  version {record.policy_version:4d}{weights}  {counts}  {verdict}"
    return "\n".join([line, *(f"  {difference}" for difference in replayed.differences)])


def new_model(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty.")],
    *,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the random weights.")] = 0,
    context_tokens: Annotated[
        int, typer.Option("--context", min=256, max=131_072, help="Longest prompt and answer, in tokens: here bytes.")
    ] = 8192,
) -> None:
    """Write a tiny untrained chat model, for a first hour without a download.

    A Qwen2 of 0.4 M parameters whose tokens are bytes. Its chat template has tools and reasoning, so any agent runs
    with it; 'up', 'eval' and 'train' take it as they take a real one. It says noise until something trains it.

        agent-layer new model ./tiny
        agent-layer up --model ./tiny
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BadInputError(
            f"model {directory}: expected a new or empty directory, found something there; choose another"
        )
    try:
        from trainer_adapter.tiny_model import write_chat_model  # noqa: PLC0415  # torch takes seconds
    except ModuleNotFoundError as error:
        raise _needs_torch("new model", error) from error
    num_parameters = write_chat_model(directory.absolute(), seed, context_tokens)
    typer.echo(
        f"{directory}: {num_parameters:,} untrained parameters; 'agent-layer up --model {directory}' serves them"
    )


def _needs_torch(command: str, error: ModuleNotFoundError) -> BadInputError:
    return BadInputError(
        f"command '{command}': expected torch and veRL to be installed, found no {error.name!r}; install torch first,"
        f" then: {install_command('train')}"
    )


def list_checkpoints(context: typer.Context, *, run: Run = None) -> None:
    """List the checkpoints of a run."""
    settings: Settings = context.obj
    typer.echo(f"{'step':>6} {'version':>8} {'size':>12}  directory")
    for directory, cursor in CheckpointDirectory(settings, run or settings.run).all():
        megabytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6
        version = "-" if cursor.policy_version is None else cursor.policy_version
        typer.echo(f"{cursor.step:>6} {version:>8} {megabytes:>9,.1f} MB  {directory}")


def export(
    context: typer.Context,
    step: Annotated[int, typer.Argument(min=0, help="Of 'agent-layer checkpoint list'.")],
    directory: Annotated[Path, typer.Argument(help="New or empty; it appears once everything is in it.")],
    *,
    run: Run = None,
    precision: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Of the written weights; the trained ones are float32.")
    ] = "float32",
    adapter: Annotated[
        bool, typer.Option("--adapter", help="Write the LoRA adapter in PEFT's form, in place of the whole model.")
    ] = False,
) -> None:
    """Write the weights of a checkpoint as a model directory in Hugging Face's form.

    Shards of any number of processes become one model. In float32 it computes the logits of the trained model to the
    last bit. A LoRA adapter is added to the weights.

    agent-layer checkpoint export 200 ./my-model --precision bfloat16
    """
    settings: Settings = context.obj
    run = run or settings.run
    checkpoint = CheckpointDirectory(settings, run).find(step)
    from trainer_adapter.verl import export_checkpoint  # noqa: PLC0415  # torch takes seconds

    console = Console(stderr=True)
    columns = ("tensors", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("export", total=None)
        export_checkpoint(
            checkpoint,
            directory.absolute(),
            precision=precision,
            adapter_only=adapter,
            progress=lambda num_done, num_all: bar.update(task, completed=num_done, total=num_all),
        )
    typer.echo(f"step {step} of run {run} is in {directory}")
