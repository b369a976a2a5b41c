"""Answers about runs: which there are, whether one is all right, its updates and what each learned from."""

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from agent_layer import __version__
from agent_layer.engines import Engine, EngineRegistry, behind_seconds, newest_number, newest_policy
from agent_layer.errors import NotFoundError
from agent_layer.health import RunHealth, StepProgress
from agent_layer.infra import format_count, mean, read_lines
from agent_layer.schema import AuditVerdict, LeftOutTask, TrainedBatch
from agent_layer.store import Summary, count_by_fields, find_newest_starts, list_batches, summarise_trajectories
from agent_layer.times import format_minute, format_time
from agent_layer.view.answers.lists import (
    AlarmLine,
    CatalogueLine,
    CatalogueList,
    Counts,
    EngineLine,
    EngineList,
    FindingLine,
    Health,
    HealthLevel,
    HeldOut,
    Info,
    Progress,
    RoundLine,
    RunAnswer,
    RunLine,
    RunList,
    UpdateLine,
    UpdateList,
    Version,
)
from agent_layer.view.reads.lists import ABOVE_ZERO, FAILED, facet_lines
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext, refuse_archive

_MAX_FAILURES = 10
_NONE_ACCEPTED: Final = Summary(by={}, count=0, num_rewarded=0, mean_reward=None, success_rate=None)
_NUMBERS: Final = tuple(
    name
    for name in StepProgress.__struct_fields__
    if name.startswith(("num_", "staleness_")) or name.endswith("_seconds") or name in ("reward_mean", "success")
)


def info(source: ReadContext, params: RequestParams) -> Info:
    """Return what is looked at."""
    return Info(
        version=__version__,
        namespace=source.store.keys.namespace,
        default_run=source.settings.run,
        is_operator=params.is_operator,
        takes_writes=params.takes_writes,
        may_write=params.takes_writes and params.is_operator,
        is_archive=source.is_archive,
        cooled_runs=sorted(source.cooled_runs()),
        now=time.time(),
    )


def list_runs(source: ReadContext, _: RequestParams) -> RunList:
    """List runs, the one with the newest trajectory first."""
    lines = _run_lines(source)
    if source.cooled is not None:
        cooled = source.cooled_runs()
        lines += [line for line in _run_lines(source.cooled.source) if line.run in cooled]
    return RunList(items=sorted(lines, key=lambda line: line.newest_started_at or "", reverse=True))


def show_run(source: ReadContext, params: RequestParams) -> RunAnswer:
    """Return whether a run is all right; one that just began has nothing stored yet.

    Raises: NotFoundError: it is unknown.
    """
    run = params.path["run"]
    (counts, is_evaluation), reports = _counts(source, run), source.progress(run)
    policy = newest_policy(source.store.redis, source.store.keys, run)
    if not (counts.trajectories or reports or policy or _has_begun(source, run)):
        raise NotFoundError(f"run {run!r}: expected it in the store, found nothing of it; '/api/v1/runs' lists all")
    failures = [
        row
        for status in FAILED
        if status in counts.by_status
        for row in source.store.query(run=run, status=status, limit=_MAX_FAILURES).items
    ]
    failures.sort(key=lambda row: row.started_at or "", reverse=True)
    return RunAnswer(
        run=run,
        is_evaluation=is_evaluation,
        is_cooled=source.is_cooled,
        num_cooled=source.num_cooled(run),
        health=_health(counts, source.health.read([run])[0], is_evaluation=is_evaluation),
        held_out=_held_out(source.settings.dir / "runs" / run),
        counts=counts,
        newest_version=policy and Version.from_record(policy),
        failures=failures[:_MAX_FAILURES],
        steps=make_progress(source, run, reports),
    )


def list_updates(source: ReadContext, params: RequestParams) -> UpdateList:
    """List the updates of a run."""
    batches = list_batches(source.store.redis, source.store.keys, params.path["run"])
    return UpdateList(items=[_update_line(batch) for batch in batches])


def list_engines(source: ReadContext, _: RequestParams) -> EngineList:
    """List engines. Raises: NotFoundError: there is only a bucket."""
    refuse_archive(source, "engines")
    registry = EngineRegistry(source.store.redis, source.store.keys, source.settings.gateway_seconds)
    return EngineList(
        items=[_engine_line(source, one, time.time()) for one in registry.engines()],
        gateways=registry.live_gateways(),
    )


def _engine_line(source: ReadContext, engine: Engine, now: float) -> EngineLine:
    redis, keys = source.store.redis, source.store.keys
    behind = behind_seconds(redis, keys, engine.run, engine.version, now)
    limit = next((one.warn for one in source.health.checks if one.name == "engine_behind"), None)
    return EngineLine.from_record(
        engine,
        newest_version=newest_number(redis, keys, engine.run),
        behind_seconds=behind,
        is_stale=limit is not None and behind > limit,
        held_seconds=None if engine.held_since is None else max(0.0, now - engine.held_since),
    )


def list_catalogue(source: ReadContext, _: RequestParams) -> CatalogueList:
    """List what can be wrong with a run."""
    return CatalogueList(items=[CatalogueLine.from_record(one) for one in source.health.checks])


def _run_lines(source: ReadContext) -> list[RunLine]:
    """Read all runs that have trajectories, each number for all of them at once."""
    index, redis, keys = source.index, source.store.redis, source.store.keys
    counts = count_by_fields(index, ["run", "split"], {})[1]
    totals, has_evaluations = counts["run"], "eval" in counts["split"]
    evaluated = count_by_fields(index, ["run"], {"split": "eval"})[1]["run"] if has_evaluations else {}
    found = summarise_trajectories(index, ["run"], {"accepted": True}, ABOVE_ZERO)
    of_run = {line.by["run"]: line for line in found}
    starts = find_newest_starts(index, "run")
    lines = list[RunLine]()
    for health in source.health.read([run for run in starts if run in totals]):
        run, accepted = health.run, of_run.get(health.run, _NONE_ACCEPTED)
        policy = newest_policy(redis, keys, run)
        lines.append(
            RunLine.from_record(
                accepted,
                run=run,
                num_trajectories=totals[run],
                is_evaluation=evaluated.get(run) == totals[run],
                num_accepted=accepted.count,
                newest_version=policy.number if policy else None,
                num_updates=(policy.training_step or 0) if policy else 0,
                newest_started_at=format_time(starts[run]),
                health=_level(health),
                finding=health.findings[0].name if health.findings else None,
                is_cooled=source.is_cooled,
                num_cooled=source.num_cooled(run),
                finding_title=health.findings[0].title if health.findings else None,
            )
        )
    return lines


def _has_begun(source: ReadContext, run: str) -> bool:
    """Whether the page was opened for a run, or tasks were submitted to it."""
    if source.is_archive:
        return False
    return run == source.settings.run or bool(source.dispatcher.runs([run]))


def _counts(source: ReadContext, run: str) -> tuple[Counts, bool]:
    """Count the trajectories of a run, and return whether all, at least one, are of split eval."""
    accepted = next(iter(source.store.summarise(success=ABOVE_ZERO, run=run, accepted=True)), _NONE_ACCEPTED)
    num, by = count_by_fields(source.index, ["status", "cause", "finding", "split"], {"run": run})
    counts = Counts(
        trajectories=num,
        accepted=accepted.count,
        rewarded=accepted.num_rewarded,
        mean_reward=accepted.mean_reward,
        success_rate=accepted.success_rate,
        by_status={str(line.value): line.count for line in facet_lines(by["status"])},
        by_cause={str(line.value): line.count for line in facet_lines(by["cause"])},
        by_finding={str(line.value): line.count for line in facet_lines(by["finding"])},
    )
    return counts, by["split"].get("eval") == num > 0


def _level(health: RunHealth) -> HealthLevel:
    return health.findings[0].level if health.findings else "ok" if health.reports else "unknown"


def _health(counts: Counts, found: RunHealth, *, is_evaluation: bool) -> Health:
    run, last = found.run, found.reports[-1] if found.reports else None
    findings = list(found.findings)
    if findings:
        sentence = f"{findings[0].title_line}."
    elif last is not None:
        ended = format_minute(last.ended_at)
        sentence = f"Nothing is wrong with step {last.step}, which ended at {ended}: success {_percent(last.success)}."
    elif is_evaluation:
        success = _percent(counts.success_rate)
        sentence = (
            f"An evaluation of {counts.trajectories} trajectories, from which no update learns: success {success}."
        )
    elif counts.trajectories:
        sentence = f"{counts.trajectories} trajectories are stored; no report of a training step is here."
    else:
        sentence = "Nothing is stored yet: its first trajectory appears here."
    alarms = [
        AlarmLine(
            kind=kind,
            num=num,
            sentence=f"{num} of {counts.trajectories} trajectories have the finding {kind}",
            filters={"run": run, "finding": kind},
        )
        for kind, num in counts.by_finding.items()
    ]
    return Health(
        level=_level(found), sentence=sentence, step=last.step if last else None, findings=findings, alarms=alarms
    )


def _held_out(directory: Path) -> HeldOut | None:
    """Return what a run's directory tells of its held-out tasks; None: nothing."""
    left_out = read_lines(directory / "left_out.jsonl", LeftOutTask)
    try:
        audit = msgspec.json.decode((directory / "audit.json").read_bytes(), type=AuditVerdict)
    except (OSError, msgspec.DecodeError):
        audit = None
    if audit is None and not left_out and not (directory / "held_out.jsonl").exists():
        return None
    first = f" The first, {left_out[0].task_id}, {left_out[0].match}." if left_out else ""
    repeated = f"Left out as repetitions of held-out tasks: {format_count(len(left_out), 'task')}.{first}"
    if audit is None:
        return HeldOut(level="unknown", sentence=f"{repeated} No audit was made: 'agent-layer checkpoint audit STEP'.")
    share = "" if audit.learned_share is None else f", with {audit.learned_share:.2%} of the trained tokens"
    verdict = "proved that none was learned" if audit.is_proven else "did not prove that none was learned"
    if audit.num_learned:
        verdict = f"found that {audit.num_learned:,} were learned{share}"
    near = f"; near-duplicates that were not refused: {audit.num_near:,}" if audit.num_near else ""
    return HeldOut(
        level="ok" if audit.is_proven else "warn",
        sentence=f"The audit of step {audit.step:,} ({format_minute(audit.audited_at)}) compared {audit.num_held_out:,}"
        f" held-out tasks and {verdict}{near}. {repeated}",
    )


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{100 * share:.0f} %"


def _update_line(batch: TrainedBatch) -> UpdateLine:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for rollout in batch.rollouts:
        groups[rollout.group_id].append(rollout.reward)
    rewards = [reward for group in groups.values() for reward in group]
    return UpdateLine.from_record(
        batch,
        num_rollouts=len(batch.rollouts),
        num_groups=len(groups),
        reward_mean=mean(rewards) if rewards else None,
    )


def progress(source: ReadContext, params: RequestParams) -> Progress:
    """Return the updates of a run in columns, those after a step where one is named."""
    run, after = params.path["run"], params.number("after", 0, 0, 2**31)
    return make_progress(source, run, [one for one in source.progress(run) if one.step > after], after)


def make_progress(source: ReadContext, run: str, reports: Sequence[StepProgress], after: int = 0) -> Progress:
    """Turn reports into columns; without any, batches."""
    if not reports:
        return _from_batches(source, run, after)
    metrics = sorted({name for one in reports for name in one.metrics})
    tasks = sorted({task for one in reports for task in one.success_by_task})
    return Progress(
        source="progress",
        step=[one.step for one in reports],
        policy_version=[one.policy_version for one in reports],
        ended_at=[one.ended_at for one in reports],
        numbers={name: [getattr(one, name) for one in reports] for name in _NUMBERS},
        metrics={name: [one.metrics.get(name) for one in reports] for name in metrics},
        success_by_task={task: [one.success_by_task.get(task) for one in reports] for task in tasks},
        evaluations=[RoundLine.from_record(held, step=one.step) for one in reports for held in one.evaluations],
        findings=[FindingLine.from_record(found, step=one.step) for one in reports for found in one.health],
    )


def _from_batches(source: ReadContext, run: str, after: int) -> Progress:
    stored = list_batches(source.store.redis, source.store.keys, run)
    batches = [batch for batch in stored if batch.step > after]
    rewards = [[rollout.reward for rollout in batch.rollouts] for batch in batches]
    return Progress(
        source="batches" if batches else "none",
        step=[batch.step for batch in batches],
        policy_version=[batch.policy_version for batch in batches],
        ended_at=[batch.trained_at for batch in batches],
        numbers={
            "reward_mean": [mean(one) if one else None for one in rewards],
            "num_rollouts": [len(batch.rollouts) for batch in batches],
            "num_samples": [batch.num_samples for batch in batches],
        },
        metrics={},
        success_by_task={},
        evaluations=[],
        findings=[],
    )
