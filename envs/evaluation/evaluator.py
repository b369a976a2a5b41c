"""One evaluation from its request to its figures: tasks, model, round, rollouts, record."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from agent_layer.dispatcher import connect
from agent_layer.errors import BadInputError
from agent_layer.infra import hold_alone
from agent_layer.recorder import ensure_shipper
from agent_layer.schema import JsonObject, Task
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from envs.costs import Price
from envs.evaluation.driver import Driver, Stopped, start_worker
from envs.evaluation.figures.comparison import Comparison, compare_results
from envs.evaluation.figures.figures import Figures, RoundSettings, TaskResult, compute_figures
from envs.evaluation.identity import describe_command, describe_target, is_earlier_fingerprint
from envs.evaluation.measure import AttemptReader
from envs.evaluation.models import ModelChoice, ServedModel, serve_model
from envs.evaluation.prices import Prices
from envs.evaluation.rounds import (
    EvaluatedAgent,
    EvaluatedModel,
    Round,
    RoundStore,
    TaskSource,
    check_round_name,
    check_same,
    take_changes,
)
from envs.evaluation.tasks import LoadedTasks, hash_tasks, load_tasks, prepare_task, reference_task
from envs.evaluation.view import LiveView

_ROLLOUTS = 8


class EvalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. None: as the stored round that is resumed, else the default."""

    tasks: str | None = None
    """Task set, file or folder."""
    agent: str | None = None
    command: list[str] = []
    command_options: list[str] = []
    """Options of the worker that say how the command runs."""
    model: str | None = None
    model_name: str | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    n: int | None = None
    level: int | None = None
    split: str | None = None
    seed: int | None = None
    limit: int | None = None
    slots: int = 16
    sampling: JsonObject | None = None
    scorer: str | None = None
    threshold: float | None = None
    name: str | None = None
    is_resumed: bool = False
    redoes_changed: bool = False
    """Whether a resumed round takes what has changed since it began, and redoes what that touches."""
    max_cost: float | None = None
    price: Price | None = None


class RoundResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out."""

    round: Round
    figures: Figures
    results: list[TaskResult]
    stopped: Stopped | None = None
    """Why it lacks rollouts that were asked for; None: it did not stop early."""


def evaluate(settings: Settings, request: EvalRequest) -> RoundResult:
    """Run a round, or what a stored one lacks, and store it.

    Raises:
        BadInputError: agent, tasks, model or an option cannot be used; or a resumed round began with others.
        AgentLayerError: a process ended, or a server does not answer.
    """
    store = open_store(settings)
    rounds = RoundStore(store.objects, settings.namespace)
    stored = _find_stored(rounds, request)
    if stored is not None and stored.state == "complete" and not request.redoes_changed:
        _check_complete(settings, request, stored)
        return show_round(settings, stored.name)
    if stored is not None and stored.only_version is not None:
        raise BadInputError(
            f"round {stored.name!r}: expected the round of a user, found one of a training run; its trainer goes on"
            " with it where its weights still serve"
        )
    request = _complete(request, stored)
    loaded, agent = _load(settings, request, stored)
    name = stored.name if stored else check_round_name(request.name or _make_name(loaded.source))
    lock = settings.dir.absolute() / "runs" / f"eval.{name}" / "lock"
    refusal = f"round {name!r}: another process runs it; wait for its end, or choose another name"
    with hold_alone(lock, refusal), LiveView() as view:
        ensure_shipper(settings)  # for logs of processes that were killed
        needs_model = any(not task.calls_optional for task in loaded.tasks)
        choice = ModelChoice(
            model=request.model,
            name=request.model_name,
            tool_parser=request.tool_parser,
            reasoning_parser=request.reasoning_parser,
        )
        with serve_model(
            settings,
            choice,
            needs_model=needs_model,
            report_phase=view.set_phase,
            limit_cost=partial(_limit_cost, request, store, stored),
        ) as served:
            for warning in [*loaded.notes, *([served.warning] if served.warning else [])]:
                view.say(f"warning: {warning}")
            new_round = _make_round(name, request, loaded, agent, served.model)
            if stored is not None:
                new_round = _go_on(stored, new_round, view, redoes_changed=request.redoes_changed)
            view.begin(new_round)
            evaluation = _Evaluation(store=store, rounds=rounds, served=served, request=request, view=view)
            return evaluation.run(new_round, loaded.tasks)


def show_round(settings: Settings, name: str) -> RoundResult:
    """Measure a stored round again: later judgements of its trajectories count.

    Where trajectories were deleted since, the stored figures stand.

    Raises: BadInputError: there is no such round.
    """
    store = open_store(settings)
    rounds = RoundStore(store.objects, settings.namespace)
    one = rounds.get(name)
    attempts = _open_reader(store, one).read()
    figures, results = compute_figures(one.tasks, attempts, one.yardstick)
    if one.figures is not None and len(attempts) < one.figures.num_attempts:
        return RoundResult(round=one, figures=one.figures, results=one.results)
    if figures != one.figures and one.ended_at is not None:
        one = msgspec.structs.replace(one, figures=figures, results=results)
        rounds.write(one)
    return RoundResult(round=one, figures=figures, results=results)


def list_rounds(settings: Settings) -> list[Round]:
    """Return all rounds, oldest first."""
    return RoundStore(open_store(settings).objects, settings.namespace).list()


def compare_with(settings: Settings, result: RoundResult, earlier: str) -> Comparison:
    """Compare a round with an earlier one, task by task.

    Raises: BadInputError: there is no such round, or it shares no task that has rewards in both.
    """
    before = show_round(settings, earlier)
    if comparison := compare_results(result.results, before.results, result.round.yardstick):
        return comparison
    raise BadInputError(
        f"round {earlier!r}: expected tasks with the same inputs as round {result.round.name!r}, with rewards in both,"
        " found none; compare rounds of the same task set, seed and level"
    )


def _find_stored(rounds: RoundStore, request: EvalRequest) -> Round | None:
    if request.is_resumed:
        if request.name is None:
            raise BadInputError("eval: expected --round NAME beside --resume, found none; 'eval --list' shows rounds")
        return rounds.get(request.name)
    if request.name is not None and (known := rounds.find(check_round_name(request.name))):
        raise BadInputError(
            f"round {known.name!r}: expected a new name, found a stored round ({known.state}); add --resume to go on"
            " with it, or choose another name"
        )
    return None


def _complete(request: EvalRequest, stored: Round | None) -> EvalRequest:
    """Fill what the caller left out, from the stored round or the defaults."""
    if stored is None:
        return request
    source, yardstick = stored.source, stored.yardstick
    has_agent = request.agent is not None or request.command
    known = {
        "tasks": source.name,
        "model": stored.asked_model,
        "model_name": stored.model.name if stored.model.kind == "endpoint" else None,
        "tool_parser": stored.model.tool_parser,
        "reasoning_parser": stored.model.reasoning_parser,
        "n": yardstick.n,
        "level": source.level,
        "split": source.split,
        "seed": source.seed,
        "limit": source.limit,
        "sampling": stored.sampling,
        "scorer": stored.scorer,
        "threshold": yardstick.threshold,
        "price": stored.price,
        **({} if has_agent else {"agent": stored.agent.target, "command": stored.agent.command}),
        **({} if has_agent else {"command_options": stored.agent.command_options}),
    }
    missing = {name: value for name, value in known.items() if getattr(request, name) in (None, [])}
    return msgspec.structs.replace(request, **missing)


def _check_complete(settings: Settings, request: EvalRequest, stored: Round) -> None:  # kept: evaluate tells the steps
    """Check what the caller named against a round that lacks nothing, without serving its model.

    Raises: BadInputError: it is another.
    """
    if request.model not in (None, stored.asked_model):
        raise BadInputError(
            f"round {stored.name!r}: expected --model {stored.asked_model}, with which it is complete, found"
            f" {request.model}; begin another round with --round NAME"
        )
    named = _complete(request, stored)
    if request.tasks is not None:
        loaded, agent = _load(settings, named, stored)
        check_same(stored, _make_round(stored.name, named, loaded, agent, stored.model))


def _load(settings: Settings, request: EvalRequest, stored: Round | None) -> tuple[LoadedTasks, EvaluatedAgent]:
    """Read the tasks, and find the agent."""
    if request.tasks is None:
        raise BadInputError(
            "eval: expected tasks (a task set, TASKS.jsonl or a folder), found none; see 'agent-layer eval -h'"
        )
    source = TaskSource(
        name=request.tasks,
        split=request.split or "eval",
        seed=request.seed or 0,
        level=request.level or 0,
        limit=request.limit,
    )
    loaded = load_tasks(source, stored.run if stored else "eval", settings)
    if request.command:
        return loaded, describe_command(request.command, request.command_options)
    if target := request.agent or loaded.agent:
        return loaded, describe_target(target, request.command_options)
    raise BadInputError(
        f"eval: expected an agent before {request.tasks!r} or a command behind '--', found neither, and the tasks name"
        " none; name it as module:attribute"
    )


def _go_on(  # kept: evaluate tells the steps
    stored: Round, requested: Round, view: LiveView, *, redoes_changed: bool
) -> Round:
    """Return the stored round as it goes on. Raises: BadInputError: it has changed, and nothing is to be redone."""
    before, now = stored.model, requested.model
    if before.fingerprint != now.fingerprint and is_earlier_fingerprint(before.fingerprint, Path(now.location or "")):
        same = msgspec.structs.replace(before, fingerprint=now.fingerprint)
        stored = msgspec.structs.replace(stored, model=same)
    if redoes_changed:
        requested, changes = take_changes(stored, requested)
        for change in changes:
            view.say(f"changed: {change}")
    else:
        check_same(stored, requested)
    return msgspec.structs.replace(
        requested,
        replaced=requested.replaced or stored.replaced,
        started_at=stored.started_at,
        num_passes=stored.num_passes,
        price=requested.price or stored.price,
    )


def _limit_cost(request: EvalRequest, store: Store, stored: Round | None, model: EvaluatedModel) -> str | None:
    """Return what the gateway of the round may spend, as its setting; None: it has no limit.

    Raises: BadInputError: an endpoint's model has no price.
    """
    if request.max_cost is None:
        return None
    price = Prices(request.price).find(model.name, is_policy=True)
    if price is None and model.kind == "endpoint":
        raise BadInputError(
            f"eval: expected a price of {model.name!r} to keep --max-cost, found none in LiteLLM's table;"
            " give --price-in and --price-out, in US dollars per million tokens"
        )
    if price is None:
        return None
    spent = sum(one.cost for one in _open_reader(store, stored).read()) if stored else 0.0
    policy = {"prompt": price.prompt, "response": price.response}
    return msgspec.json.encode({"dollars": max(0.0, request.max_cost - spent), "policy": policy}).decode()


def _make_round(
    name: str, request: EvalRequest, loaded: LoadedTasks, agent: EvaluatedAgent, model: EvaluatedModel
) -> Round:
    threshold = 1.0 if request.threshold is None else request.threshold
    return Round(
        name=name,
        agent=agent,
        model=model,
        asked_model=request.model,
        source=loaded.source,
        tasks=[reference_task(task) for task in loaded.tasks],
        tasks_hash=hash_tasks(loaded.tasks),
        yardstick=RoundSettings(n=request.n or _ROLLOUTS, threshold=threshold, seed=loaded.source.seed),
        sampling=request.sampling or {},
        scorer=request.scorer or "agent",
        price=request.price,
        started_at=time.time(),
    )


@dataclass(frozen=True, kw_only=True)
class _Evaluation:
    """A round about to run, and what it needs."""

    store: Store
    rounds: RoundStore
    served: ServedModel
    request: EvalRequest
    view: LiveView

    def run(self, one: Round, tasks: Sequence[Task]) -> RoundResult:
        """Run what the round lacks. Its record is stored before the first rollout, and again with the figures."""
        ours = [_submittable(task, one) for task in tasks]
        reader = _open_reader(self.store, one)
        with connect(self.served.settings) as dispatcher:
            driver = Driver(one, ours, dispatcher=dispatcher, reader=reader, max_cost=self.request.max_cost)
            missing, waited = driver.plan()
            stopped = None
            if missing or waited:
                worker = start_worker(self.served.settings, one, ours, self.request.slots)
                try:
                    if missing:
                        one = driver.begin_pass()
                    self.rounds.write(one)
                    checks = [self.served.check, worker.check]
                    stopped = driver.run(missing, waited, checks=checks, show=self.view.show)
                finally:
                    worker.stop()
        figures, results = compute_figures(one.tasks, driver.attempts, one.yardstick)
        figures = msgspec.structs.replace(figures, last_error=figures.last_error or driver.last_error)
        one = msgspec.structs.replace(one, figures=figures, results=results, ended_at=time.time())
        self.rounds.write(one)
        return RoundResult(round=one, figures=figures, results=results, stopped=stopped)


def _open_reader(store: Store, one: Round) -> AttemptReader:  # kept: its two callers read the same
    prices = Prices(one.price, one.model.name)
    return AttemptReader(store, one.run, prices, one.only_version, one.replaced_groups)


def _submittable(task: Task, one: Round) -> Task:
    agent = one.agent.target or "command"
    prepared = prepare_task(task, group_size=one.yardstick.n, agent=agent, sampling=one.sampling)
    return msgspec.structs.replace(prepared, run=one.run)


def _make_name(source: TaskSource) -> str:
    stem = "".join(letter if letter.isalnum() else "-" for letter in Path(source.name).stem).strip("-") or "tasks"
    return f"{stem[:48]}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"[:-3]
