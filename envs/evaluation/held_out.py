"""Rounds of a training run on held-out tasks, each of one policy version.

The workers of the run play the tasks. The trainer switches no engine until a round has ended. A rollout with tokens of
another version, such as one of an engine that fell back, does not count, and is asked for again.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import NotWholeError
from agent_layer.schema import JsonObject, PolicyVersion, Task, make_group_id
from agent_layer.store import Store
from envs.evaluation.driver import Driver, Stopped
from envs.evaluation.evaluator import RoundResult
from envs.evaluation.figures.figures import RoundSettings, compute_figures
from envs.evaluation.measure import AttemptReader
from envs.evaluation.prices import Prices
from envs.evaluation.rounds import EvaluatedAgent, EvaluatedModel, Round, RoundStore, check_round_name
from envs.evaluation.tasks import LoadedTasks, hash_tasks, prepare_task, reference_task

log = logging.getLogger(__name__)

_MAX_PASSES = 3
"""Passes of one call: rollouts without a reward, or of another version, are asked for again."""
_PRIORITY = 1000
"""The highest: the trainer waits."""


class HeldOutEvaluator:
    """Evaluates policy versions of one training run.

    Args:
        run: the training run.
        sets: tasks by the name of their set; each has a round for each version.
        yardstick: of all rounds.
        sampling: put in place of the tasks'.
        store: has the trajectories.
        dispatcher: where rollouts are queued.

    Raises: BadInputError: run and set make no name of a round.
    """

    def __init__(
        self,
        run: str,
        sets: Mapping[str, LoadedTasks],
        yardstick: RoundSettings,
        sampling: JsonObject,
        *,
        store: Store,
        dispatcher: Dispatcher,
    ) -> None:
        self._run, self._yardstick, self._sampling = run, yardstick, sampling
        self._store, self._dispatcher = store, dispatcher
        self._rounds = RoundStore(store.objects, dispatcher.settings.namespace)
        self._sets = dict(sets)
        for name in self._sets:
            check_round_name(self._name(name, 0))

    def evaluate(
        self, policy: PolicyVersion, *, serve: Callable[[], None], stop: Callable[[], bool]
    ) -> dict[str, RoundResult]:
        """Run the round of each set, or what it lacks.

        Args:
            policy: what every engine of the run serves.
            serve: makes them serve it again; called before each pass.
            stop: polled; once True, the round in hand is left to another call.

        Returns: by set; without rounds that were complete before, or that ``stop`` ended.

        Raises: AgentLayerError: an engine, Redis or the objects do not answer.
        """
        results: dict[str, RoundResult] = {}
        for name, loaded in self._sets.items():
            new_round = Round(
                name=self._name(name, policy.number),
                agent=EvaluatedAgent(target=loaded.agent or "the agent of the run"),
                model=EvaluatedModel(
                    kind="engine",
                    location=policy.location,
                    fingerprint=policy.weights_hash,
                    policy_version=policy.number,
                ),
                only_version=policy.number,
                source=loaded.source,
                tasks=[reference_task(task) for task in loaded.tasks],
                tasks_hash=hash_tasks(loaded.tasks),
                yardstick=self._yardstick,
                sampling=self._sampling,
                scorer="agent",
                price=None,
                started_at=time.time(),
            )
            one = self._rounds.find(new_round.name) or new_round
            # one that began with other tasks stays as it is: those count from the next version on
            if one.state == "complete" or not _measures_same(one, new_round):
                continue
            result = self._run_round(one, loaded.tasks, serve, stop)
            if stop() and result.round.state != "complete":
                break
            results[name] = result
        return results

    def cancel(self, version: int) -> None:
        """Cancel what is queued of the rounds of a version that is served no more."""
        for name, loaded in self._sets.items():
            if one := self._rounds.find(self._name(name, version)):
                passes = range(1, one.num_passes + 1)
                self._dispatcher.cancel([make_group_id(one.run, task.id, at) for task in loaded.tasks for at in passes])

    def _run_round(
        self, one: Round, tasks: Sequence[Task], serve: Callable[[], None], stop: Callable[[], bool]
    ) -> RoundResult:
        ours = [self._submittable(task, one) for task in tasks]
        reader = AttemptReader(self._store, one.run, Prices(), only_version=one.only_version)
        driver = Driver(one, ours, dispatcher=self._dispatcher, reader=reader, max_cost=None)
        stopped: Stopped | None = None
        for _ in range(_MAX_PASSES):
            missing, waited = driver.plan()
            if stop() or stopped is not None or not (missing or waited):
                break
            serve()
            one = driver.begin_pass() if missing else one
            self._rounds.write(one)
            try:
                stopped = driver.run(missing, waited, stop=stop)
            except NotWholeError as error:  # what the store does not know yet is missing in the figures
                log.warning("%s", error)
        if stopped is not None:
            log.warning("round %s: stopped, %s", one.name, stopped.why)
        figures, results = compute_figures(one.tasks, driver.attempts, one.yardstick)
        one = msgspec.structs.replace(one, figures=figures, results=results, ended_at=time.time())
        self._rounds.write(one)
        return RoundResult(round=one, figures=figures, results=results, stopped=stopped)

    def _submittable(self, task: Task, one: Round) -> Task:
        prepared = prepare_task(task, group_size=one.yardstick.n, agent=None, sampling=one.sampling)
        return msgspec.structs.replace(prepared, run=one.run, priority=_PRIORITY)

    def _name(self, name: str, version: int) -> str:
        return f"{self._run}.{name}.{version:06d}"


def _measures_same(one: Round, other: Round) -> bool:
    return (one.tasks_hash, one.yardstick, one.sampling) == (other.tasks_hash, other.yardstick, other.sampling)
