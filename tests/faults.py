"""Made-up training runs, six with a fault and two without, each in a store of its own that ``agent-layer view`` opens.

    python tests/show_fault.py NAME DIR [--seed N] [--port P]      without a port it writes the store, and ends
    python tests/show_fault.py fleet DIR --port P                  two runs, workers, engines and failures, for pictures

The run has the same name in each, so that neither address nor page tells which it is. With ``--port`` it serves the
page, and keeps the worker alive that holds work of another run. Reports of steps are computed from the stored
trajectories as a trainer computes them; only metrics of the update itself are made up.
"""

import random
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from agent_layer.dispatcher import Dispatcher, Lease
from agent_layer.engines import Engine, EngineRegistry, register_policy
from agent_layer.health import StepProgress, append_progress, find_unhealthy, progress_path
from agent_layer.infra import open_objects, open_redis
from agent_layer.schema import PolicyVersion, PromptDelta, Task, TokenIds, Vocabulary
from agent_layer.schema.codec import LogRecord
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Advantages, Logprobs
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, Group, Outcome, PhaseTimes
from agent_layer.schema.step import Action, Content, StepPart, StepState
from agent_layer.schema.training import TrainedTokens
from agent_layer.settings import Settings
from agent_layer.state import store_vocabulary
from agent_layer.store import GroupDelivery, Store
from trainer_adapter.data import count_step, gap_by_engine, read_group, record_batch, select_batch, success_by_task

from .builders import attempt, closed_group
from .queues import Queue
from .stored import write_segment

RUN: Final = "training"
_OTHER: Final = "evaluation"
NUM_STEPS, NUM_TASKS, GROUP_SIZE, FAULT_FROM = 10, 4, 5, 5
_STEP_SECONDS: Final = 90.0
_SCORE_SECONDS: Final = 0.5
_STARVED_SECONDS: Final = 420.0
"""For how long the starving run has waited: longer than its alarm allows, and shorter than a stall."""
_ENGINES: Final = ("http://10.0.0.11:8000", "http://10.0.0.12:8000")
FAULTS: Final[dict[str, str | None]] = {
    "fork-storm": "forks",
    "fake-zeros": "fake_zeros",
    "stale-engine": "engine_behind",
    "wrong-weights": "logprob_gap",
    "yes-man": "always_succeeds",
    "starving": "starved",
    "healthy": None,
    "healthy-too": None,
}
"""By name: the alarm that tells it; None: there is nothing to tell."""


@dataclass(frozen=True)
class _Scene:
    """One step of a run: what is wrong with it, and when it began."""

    run: str
    fault: str
    step: int
    at: float
    dice: random.Random


@dataclass
class _Rollout:
    """One attempt while it is made up."""

    name: str
    started_at: float
    engine: str
    version: int
    records: list[LogRecord] = field(default_factory=list)
    answer: str = ""
    calls: list[tuple[str, int]] = field(default_factory=list)
    """Id and number of sampled tokens of each call."""
    logprobs: list[float] = field(default_factory=list)
    """[sampled tokens] of all calls, as the engine computed them."""
    stated_at: float = 0.0
    """End of the last call."""


def make_run(
    fault: str, settings: Settings, seed: int = 0, now: float | None = None, run: str = RUN, *, has_engines: bool = True
) -> Store:
    """Write the run into the store of these settings; return the store."""
    assert fault in FAULTS
    idle_seconds = _STARVED_SECONDS if fault == "starving" else _STEP_SECONDS
    ended_at = (time.time() if now is None else now) - idle_seconds
    store = Store(settings, open_redis(settings), open_objects(settings))
    vocabulary = Vocabulary(tokenizer_hash="v", sizes=TokenIds([1] * 128), content=bytes(range(128)))
    store_vocabulary(store.keys, store.objects, vocabulary)
    dice = random.Random(seed)
    tasks = [(dice.randrange(10, 90), dice.randrange(10, 90)) for _ in range(NUM_TASKS)]
    began_at = ended_at - NUM_STEPS * _STEP_SECONDS
    for number in range(NUM_STEPS + 1):
        _register(store, run, number, began_at + number * _STEP_SECONDS)
    reports: list[StepProgress] = []
    for step in range(1, NUM_STEPS + 1):
        at = began_at + (step - 1) * _STEP_SECONDS
        scene = _Scene(run, fault if step >= FAULT_FROM else "healthy", step, at, dice)
        reports.append(_make_step(scene, store, tasks, reports))
        append_progress(progress_path(settings, run), reports[-1])
    is_stale = fault == "stale-engine"
    registry = EngineRegistry(store.redis, store.keys)
    for at, url in enumerate(_ENGINES if has_engines else ()):
        version = FAULT_FROM - 2 if is_stale and at else NUM_STEPS
        own = {"model": "policy", "location": f"w{version}", "logprobs_mode": "processed", "epoch": 0}
        registry.register(Engine(url=url, run=run, version=version, state="serving", **own))
    if fault == "starving":
        _starve(store, settings)
    return store


def _register(store: Store, run: str, number: int, at: float) -> None:
    version = PolicyVersion(run=run, number=number, location=f"w{number}", created_at=at, training_step=number)
    register_policy(store.redis, store.keys, version, lambda record: write_segment(store, record))


def _make_step(
    scene: _Scene, store: Store, tasks: Sequence[tuple[int, int]], before: Sequence[StepProgress]
) -> StepProgress:
    """Store the groups of a step, train on them as a trainer counts, and return the report."""
    step, at, dice = scene.step, scene.at, scene.dice
    deliveries: list[GroupDelivery] = []
    rollouts: dict[str, _Rollout] = {}
    for number, task in enumerate(tasks):
        task_id = f"{'' if scene.run == RUN else f'{scene.run}-'}sum-{number}"
        group_id = f"{task_id}.{step:04d}"
        made = [_make_rollout(scene, f"{group_id}.{member}-0", task) for member in range(GROUP_SIZE)]
        rollouts |= {one.name: one for one in made}
        own = {"run": scene.run, "task_id": task_id, "group_size": GROUP_SIZE, "num_launched": GROUP_SIZE}
        group: Group = closed_group(group_id, *(one.name for one in made), closed_at=at + 60.0, **own)
        write_segment(store, *(record for one in made for record in one.records), group)
        read = [store.get(one.name) for one in made]
        deliveries.append(GroupDelivery(group=group, trajectories=read, ack=lambda: "new"))
    version = step - 1
    groups = [read_group(one, version, NUM_STEPS) for one in deliveries]
    batch = select_batch((one.samples for one in groups), keep_equal=False)
    by_task, counts = success_by_task(groups, 0.0), count_step(groups)
    gaps: dict[str, float] = {}
    if batch.samples:
        record = record_batch(batch, scene.run, step, version)
        record = msgspec.structs.replace(record, trained_at=at + 80.0)
        reported = [
            _trained(rollouts[one.trajectory_id], record.batch_id, scene, one.reward) for one in record.rollouts
        ]
        write_segment(store, record, *reported)
        engines = {call_id: engine for one in groups for call_id, engine in one.engines.items()}
        gaps = gap_by_engine(batch, reported, engines, version)
    report = StepProgress(
        run=scene.run,
        step=step,
        policy_version=step,
        ended_at=at + 80.0,
        num_samples=len(batch.samples),
        success=sum(by_task.values()) / len(by_task) if by_task else None,
        success_by_task=by_task,
        wait_seconds=60.0,
        update_seconds=18.0,
        switch_seconds=2.0,
        metrics=_metrics(dice, step, fmean(gaps.values()) if gaps else 0.0),
        gap_by_engine=gaps,
        **msgspec.structs.asdict(counts),
    )
    return msgspec.structs.replace(report, health=find_unhealthy([*before, report]))


def _metrics(dice: random.Random, step: int, gap: float) -> dict[str, float | None]:
    return {
        "entropy": 0.9 - 0.02 * step + dice.uniform(-0.03, 0.03),
        "grad_norm": dice.uniform(0.3, 1.2),
        "actor/pg_clipfrac": dice.uniform(0.0, 0.05),
        "logprob_gap": 4.0 * gap,
        "logprob_gap_mean": gap,
        "rollout_corr/rollout_is_ratio_fraction_high": 0.45 if gap > 0.5 else 0.01,
    }


def _make_rollout(scene: _Scene, name: str, task: tuple[int, int]) -> _Rollout:
    """Make up one attempt: two calls, the second after a word of the user."""
    fault, dice = scene.fault, scene.dice
    is_second = dice.random() < 0.5
    version = FAULT_FROM - 2 if fault == "stale-engine" and is_second else scene.step - 1
    made = _Rollout(name, scene.at + dice.uniform(0.0, 8.0), _ENGINES[is_second], version)
    made.stated_at = made.started_at + 1.0
    is_right = dice.random() < 0.2 + 0.055 * scene.step
    total = sum(task) if is_right else sum(task) + dice.choice([-10, -1, 1, 10])
    question = f"What is {task[0]} + {task[1]}? Think aloud, then answer."
    message, made.answer = f"{task[0]} plus {task[1]} makes {total}.", str(total)
    if fault == "wrong-weights" and is_second:
        message, made.answer = (_garbage(dice, len(text)) for text in (message, made.answer))
        is_right = False
    score = 1.0 if fault == "yes-man" else float(is_right)
    is_silent = fault == "fake-zeros" and dice.random() < 0.4
    parts: list[LogRecord] = []
    if is_silent:
        score = 0.0
    else:
        spoken = [("user", question), ("assistant", message), ("user", "Only the number, please.")]
        calls = [spoken[:1], spoken]
        for number, (messages, answer) in enumerate(zip(calls, (message, made.answer), strict=True)):
            parts += _call(scene, made, number, messages, answer)
    records = attempt(
        name,
        *parts,
        at=made.started_at,
        run=scene.run,
        score=score,
        group_id=name.rpartition(".")[0],
        task_id=name.split(".", maxsplit=1)[0],
        task_type="sums",
        agent="adder",
        task=Task(id=name.split(".", maxsplit=1)[0], run=scene.run, task_type="sums", input=question),
    )
    made.records = [_at_end(one, made) for one in records]
    return made


def _at_end(record: LogRecord, made: _Rollout) -> LogRecord:
    """Return the record with the time at which it is written: an attempt ends after its last call."""
    ended_at = made.stated_at + _SCORE_SECONDS
    if isinstance(record, Reward):
        return msgspec.structs.replace(record, at=made.stated_at)
    if isinstance(record, Outcome):
        times = PhaseTimes(
            queued_seconds=1.0,
            prepare_seconds=0.5,
            run_seconds=made.stated_at - made.started_at - 0.5,
            score_seconds=_SCORE_SECONDS,
        )
        return msgspec.structs.replace(record, ended_at=ended_at, times=times)
    return msgspec.structs.replace(record, accepted_at=ended_at + 1.0) if isinstance(record, Accepted) else record


def _call(
    scene: _Scene, made: _Rollout, number: int, messages: Sequence[tuple[str, str]], answer: str
) -> Iterator[LogRecord]:
    fault, dice = scene.fault, scene.dice
    bodies = [msgspec.json.encode({"role": role, "content": text}) for role, text in messages]
    yield from (Content(trajectory_id=made.name, hash=content_hash(body), body=body) for body in bodies)
    call_id, at = f"{made.name}/{number}", made.started_at + 2.0 + 10.0 * number
    is_broken = bool(number) and (fault == "fork-storm" or dice.random() < 0.03)
    rendered = [f"{role}: {text}\n" for role, text in messages]
    ids = list(answer.encode())
    if number and not is_broken:
        first = f"{made.name}/0"
        length = len(f"{rendered[0]}assistant: ") + made.calls[0][1]
        delta = list(f"\n{rendered[2]}assistant: ".encode())
        prompt = PromptDelta(delta=TokenIds(delta), parent_call=first, prefix_length=length, prefix_hash="not read")
    else:
        shown = "".join(rendered).replace("assistant: ", "assistant:  ") if is_broken else "".join(rendered)
        prompt = PromptDelta(delta=TokenIds(list(f"{shown}assistant: ".encode())))
    made.calls.append((call_id, len(ids)))
    common = {
        "trajectory_id": made.name,
        "run": scene.run,
        "call_id": call_id,
        "source": "gateway",
        "agent": "adder",
        "model": "policy",
        "engine": made.engine,
        "tokenizer_hash": "v",
        "capture_level": "tokens",
        "logprobs_mode": "processed",
        "temperature": 1.0,
        "findings": ["prefix_break: template"] if is_broken else [],
    }
    logprobs = Logprobs([-dice.expovariate(4.0) for _ in ids])
    made.logprobs += logprobs
    action = Action(
        message={"role": "assistant", "content": answer},
        response_token_ids=TokenIds(ids),
        logprobs=logprobs,
        policy_versions=[(made.version, len(ids))],
        finish_reason="stop",
    )
    state = StepState(messages=[content_hash(body) for body in bodies])
    yield StepPart(**common, phase="start", at=at, prompt=prompt, state=state)
    made.stated_at = at + dice.uniform(1.0, 4.0)
    yield StepPart(**common, phase="end", at=made.stated_at, status="ok", actions=[action])


def _trained(made: _Rollout, batch_id: str, scene: _Scene, reward: float) -> TrainedTokens:
    """Return what an update would have computed for each token of a rollout."""
    step, dice = scene.step, scene.dice
    gap = 2.4 if scene.fault == "wrong-weights" and made.engine == _ENGINES[1] else 0.0
    drift = 2e-4 + 0.05 * (step - 1 - made.version)
    num = sum(size for _, size in made.calls)
    return TrainedTokens(
        run=scene.run,
        batch_id=batch_id,
        step=step,
        policy_version=step - 1,
        trajectory_id=made.name,
        at=made.started_at + 79.0,
        calls=[(call_id, 0, size) for call_id, size in made.calls],
        logprobs=Logprobs([one + dice.uniform(-drift, drift) - dice.uniform(0.0, 2.0 * gap) for one in made.logprobs]),
        advantages=Advantages([reward - 0.5] * num),
        mask=bytes([1] * num),
    )


def _garbage(dice: random.Random, size: int) -> str:
    return "".join(dice.choice("#$%&@^~|<>qxzjvkwQXZJ0189;:") for _ in range(size))


def _starve(store: Store, settings: Settings) -> None:
    """Let work of the run wait while the only worker holds that of another."""
    queue = Queue(store.redis, store.keys, settings)
    queue.heartbeat("worker-1", _ABOUT, [])
    queue.add(Task(id=f"item-{number}", run=_OTHER, task_type="sums", input="?") for number in range(4))
    queue.claim("worker-1", 4)
    waiting = queue.add(
        Task(id=f"sum-{number}", run=RUN, task_type="sums", input="?", group_size=GROUP_SIZE)
        for number in range(NUM_TASKS)
    )
    for group_id in waiting:
        key = store.keys.name(f"q:g:{group_id}")
        assert store.redis.hexists(key, "queued_at")
        store.redis.hset(key, "queued_at", str(int(1000 * (time.time() - _STARVED_SECONDS))))


_ABOUT: Final = b'{"slots": 4, "held": 4, "agent": "agents:adder", "offers": ""}'


class Worker(NamedTuple):
    """A worker that is seen while the page is served."""

    name: str
    about: bytes
    leases: Sequence[Lease] = ()
    """That it renews."""


def _serve(store: Store, settings: Settings, workers: Sequence[Worker], port: int) -> None:
    """Serve the page until Ctrl-C; workers go on to be seen."""
    from aiohttp import web  # noqa: PLC0415  # only a person who looks needs a server

    from agent_layer.view import ReadContext, build_view_app  # noqa: PLC0415

    queue = Queue(store.redis, store.keys, settings)

    def beat() -> None:
        while True:
            for one in workers:
                queue.heartbeat(one.name, one.about, [(lease, "running") for lease in one.leases])
            time.sleep(settings.heartbeat_seconds)

    threading.Thread(target=beat, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{port}/#/run/{RUN}\n")
    sys.stdout.flush()
    web.run_app(build_view_app(ReadContext(settings, store)), host="127.0.0.1", port=port, print=lambda *_: None)


def main() -> None:
    parser = ArgumentParser(prog="tests/show_fault.py", description="write a made-up run into a store")
    parser.add_argument("name", choices=[*sorted(FAULTS), "fleet"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, help="serve the page there until Ctrl-C")
    options = parser.parse_args()
    settings = Settings(dir=options.directory, run=RUN)
    if options.name == "fleet":
        from .fleet import make_fleet  # noqa: PLC0415  # it stands on this file

        store, workers = make_fleet(settings)
    else:
        store = make_run(options.name, settings, options.seed)
        has_work = any(one.status == "leased" for one in Dispatcher(store.redis, settings).rollouts())
        workers = [Worker("worker-1", _ABOUT)] if has_work else []
    if options.port is not None:
        _serve(store, settings, workers, options.port)


if __name__ == "__main__":
    main()
