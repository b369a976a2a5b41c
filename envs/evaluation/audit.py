"""Command ``tasksets audit``: a report on any task set, with a verdict and the tasks to leave out."""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.infra import replace_file
from agent_layer.schema import JsonObject
from agent_layer.settings import Settings
from envs.evaluation.evaluator import EvalRequest, RoundResult, evaluate
from envs.tasksets import (
    Examination,
    Finding,
    GateOptions,
    Report,
    make_finding,
    print_report,
    save_report,
    show_progress,
    write_task_line,
)

_EXIT_STOPPED = 130


def audit(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SET|DIR|MODULE",
            help="Registered name, module:attribute, module, FILE.py, TASKS.jsonl, or a folder of such files.",
        ),
    ],
    *,
    sample: Annotated[int, typer.Option(min=1, help="Tasks of each level that are scored.")] = 16,
    compare: Annotated[
        int, typer.Option(min=1, help="Tasks of each level and split that are compared; of files all.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the tasks and of the sample: equal ones give equal audits.")] = 0,
    level: Annotated[int | None, typer.Option(min=0, help="Only this level; else all.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Also name tasks that this model solves always or never; as 'eval' takes it.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Plays the tasks with --model; else what they or their set name.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=2, max=1000, help="Rollouts of each task with --model.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    report_file: Annotated[Path | None, typer.Option("--report", help="Write the report as JSON into a file.")] = None,
    leave_out: Annotated[
        Path | None,
        typer.Option(help="Write the tasks to leave out into a file, for 'submit --leave-out' and 'held_out'."),
    ] = None,
) -> None:
    """Audit any task set: its scorer, leaks, duplicates.

    The reference scores 1. Nothing, an empty answer, the prompt, garbage, code that crashes or never ends, and the
    common forgeries score 0; equal answers score the same again, with other hashes and at another time. No grading is
    in what the agent sees, in any encoding; no task repeats another; no single answer solves the set.

    The verdict is stored: 'submit' and 'train' refuse a set that failed, and label the tasks of others with it. Ctrl-C
    reports what was found so far. Exit status 1 if the set fails.

        agent-layer tasksets audit repair --sample 4
        agent-layer tasksets audit tasks.jsonl --json
        agent-layer tasksets audit my_tasks:Sums --model URL --leave-out bad.jsonl
    """
    settings: Settings = context.obj
    sys.path.insert(0, str(Path.cwd()))
    options = GateOptions(
        kind="audit", seed=seed, levels=None if level is None else [level], count=sample, compared=compare
    )
    with show_progress("audit") as tell:
        examination = Examination(source, options, tell)
        with suppress(KeyboardInterrupt):
            asyncio.run(examination.run())
    if model is not None and examination.is_done:
        for one, tasks in examination.sample.items():
            with TemporaryDirectory() as folder:
                path = Path(folder) / f"audit-level-{one}.jsonl"
                _write(path, (write_task_line(task, examination.taskset) for task in tasks))
                agent_name = agent or examination.taskset.agent or None
                request = EvalRequest(tasks=str(path), agent=agent_name, model=model, n=n)
                examination.add(*_judge_attempts(evaluate(settings, request), one, n))
    report = examination.report()
    if (level is None and examination.is_done) or report.failures:
        save_report(settings.dir, report)
    content = msgspec.json.format(msgspec.json.encode(report), indent=1)
    tasks = examination.find_tasks(report.leave_out)
    _write(report_file, [content])
    _write(leave_out, (write_task_line(task, examination.taskset) for task in tasks))
    if as_json:
        typer.echo(content.decode())
    else:
        print_report(report)
    _end(report, is_done=examination.is_done)


def _write(path: Path | None, lines: Iterable[bytes]) -> None:
    try:
        if path is not None:
            replace_file(path, lines, private=False)
    except OSError as error:
        raise BadInputError(f"file {path}: cannot be written, {error.strerror}; choose another place") from error


def _end(report: Report, *, is_done: bool) -> None:  # kept: exit statuses
    if not is_done:
        raise typer.Exit(_EXIT_STOPPED)
    if not report.is_passed:
        raise AgentFailedError(
            f"task set {report.taskset!r}: failed its audit, {', '.join(report.codes)}; mend it, leave out the tasks"
            " that --leave-out FILE writes, or use it with --unchecked"
        )


def _judge_attempts(result: RoundResult, level: int, num_rollouts: int) -> tuple[list[Finding], JsonObject]:
    """Return which tasks a model solved always or never, and its share of all."""
    whole = {one.id: one.pass_rate(1.0) for one in result.results if len(one.rewards) == num_rollouts}

    def find() -> Iterator[Finding]:
        for code, rate in (("always-solved", 1.0), ("never-solved", 0.0)):
            if tasks := [name for name, one in whole.items() if one == rate]:
                text = f"level {level}: {len(tasks)} of {len(whole)} tasks, {num_rollouts} rollouts each"
                yield make_finding(code, text, tasks=tasks)

    share = round(sum(whole.values()) / len(whole), 3) if whole else None
    return list(find()), {f"model_share_level_{level}": share}
