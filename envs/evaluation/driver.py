"""Runs what a round lacks, and measures it: the one loop of an evaluation.

    plan what is missing ── submit as one pass ── wait, look, show ──▶ every group closed ──▶ all is in the store
                                                     │
                                                     └─ Ctrl-C, cost, failures: pause the run, let rollouts end

A round can be killed anywhere. Rollouts of earlier passes stay queued, and another start waits for them; it asks, in a
pass of its own, only for what neither counts nor is queued. So nothing counts twice.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from agent_layer.dispatcher import Dispatcher, GroupState, RunState
from agent_layer.errors import AgentFailedError, BadInputError, NotFoundError, NotWholeError
from agent_layer.infra import ORPHAN_SECONDS, SupervisedProcess, start_supervised
from agent_layer.schema import Task, make_trajectory_id
from agent_layer.settings import Settings
from envs.evaluation.figures.figures import MeasuredAttempt, collect_results
from envs.evaluation.measure import AttemptReader
from envs.evaluation.rounds import Round

_WAIT_SECONDS = 0.5
_LOOK_SECONDS = 1.0
"""Between two looks at the store, or ten times as long as the last look took."""
_LOOK_FACTOR = 10
_READY = "Ctrl-C drains it"
"""What a worker prints once it claims."""
_BAD_INPUT_STATUS = 2
"""Exit status of a worker that cannot use its target."""
_INTERRUPTED = "it was interrupted"
_LAST_SECONDS = 600.0
"""Longest wait for rollouts that run when a round stops by itself."""
_FAILED_SECONDS = 5.0
"""Longest wait until attempts that failed are stored."""
_POLL_SECONDS = 0.1
_LACK_SECONDS = 60.0
"""How long rollouts may need what no worker offers."""
_WORKER_VARIABLES = {
    "AGENT_LAYER_POLICY_KEY": "",  # the gateway's alone
    "PYTHONWARNINGS": "ignore",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise its import downloads the price list
}


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A look at a round that runs."""

    attempts: Sequence[MeasuredAttempt]
    num_asked: int
    num_running: int
    num_submitted: int
    """Rollouts that this start asked for or waits for."""
    num_ended: int
    """Rollouts among them that ended."""
    seconds: float
    """Since this start."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Why a round ended before it had everything."""

    why: str
    by_user: bool = False


class Driver:
    """Runs one round.

    Args:
        one: the round; ``tasks`` are its tasks.
        tasks: [num_tasks].
        dispatcher: where they are queued.
        reader: measures what is stored.
        max_cost: US dollars at which the round stops; None: no limit.
    """

    def __init__(
        self,
        one: Round,
        tasks: Sequence[Task],
        *,
        dispatcher: Dispatcher,
        reader: AttemptReader,
        max_cost: float | None,
    ) -> None:
        self._round = one
        self._tasks = tasks
        self._dispatcher = dispatcher
        self._reader = reader
        self._checks: Sequence[Callable[[], None]] = ()
        self._show: Callable[[Progress], None] = lambda _: None
        self._stop: Callable[[], bool] = lambda: False
        self._max_cost = max_cost
        self._began = time.monotonic()
        self._lacks_since: float | None = None
        """Since when rollouts need what no worker offers; None: they do not."""
        self.attempts: list[MeasuredAttempt] = []
        """As of the last look."""
        self.last_error: str | None = None
        """Why the newest rollout came to nothing, as its worker said; None: none did."""

    def plan(self) -> tuple[list[Task], list[str]]:
        """Return tasks to submit, with the number of rollouts that each lacks, and open groups of earlier passes.

        A rollout counts when the dispatcher or the store knows its reward: the store does not know the newest yet, the
        dispatcher forgets old groups.
        """
        one = self._round
        self._dispatcher.cancel(sorted(one.replaced_groups))
        self.attempts = self._reader.read()
        yardstick = one.yardstick
        stored = collect_results(one.tasks, self.attempts, yardstick)
        foreign = Counter(at.task_id for at in self.attempts if at.excluded in ("version", "cost") and at.has_reward)
        ids = {task.id: [*one.list_groups(task.id)] for task in self._tasks}
        known = {group.group_id: group for group in self._dispatcher.groups([one for of in ids.values() for one in of])}
        missing: list[Task] = []
        waited: list[str] = []
        for task, result in zip(self._tasks, stored, strict=True):
            groups = [known[one] for one in ids[task.id] if one in known]
            num_usable = max(len(result.rewards), sum(group.num_usable for group in groups) - foreign[task.id])
            num_open = sum(group.num_open for group in groups)
            waited += [group.group_id for group in groups if not group.is_closed]
            if (num_missing := yardstick.n - num_usable - num_open) > 0:
                missing.append(msgspec.structs.replace(task, group_size=num_missing))
        return missing, waited

    def begin_pass(self) -> Round:
        """Return the round with one more pass; it must be stored before the pass is submitted."""
        self._round = msgspec.structs.replace(self._round, num_passes=self._round.num_passes + 1)
        return self._round

    def run(
        self,
        missing: Sequence[Task],
        waited: Sequence[str],
        *,
        checks: Sequence[Callable[[], None]] = (),
        show: Callable[[Progress], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Stopped | None:
        """Submit what is missing, and wait for it and for open groups.

        Args:
            missing: tasks with the number of rollouts that each lacks.
            waited: open groups of earlier passes.
            checks: raise when a process that the round needs has ended.
            show: receives each look.
            stop: once True, everything is left as it is, for another call.

        Returns: why it stopped early; None: everything has ended, or ``stop`` ended the wait.

        Raises: AgentLayerError: a process has ended, or a server does not answer.
        """
        self._checks, self._show, self._stop = checks, show, stop
        run, dispatcher = self._round.run, self._dispatcher
        dispatcher.resume(run)  # an interruption or the limit of cost has paused it
        ids = list(waited)
        try:
            if missing:
                ids += dispatcher.submit(missing, round=self._round.num_passes)
            stopped = self._wait(ids)
        except KeyboardInterrupt:
            stopped = Stopped(why=_INTERRUPTED, by_user=True)
        if self._stop():
            return None
        if stopped is not None:
            self._drain(stopped)
        self._await_stored(ids)
        self._await_failed(ids)
        return stopped

    def _wait(self, ids: Sequence[str]) -> Stopped | None:
        states: dict[str, GroupState] = {}
        look_at = 0.0
        while open_ids := [one for one in ids if one not in states or not states[one].is_closed]:
            if self._stop():
                return None
            states |= {group.group_id: group for group in self._dispatcher.wait(open_ids, timeout=_WAIT_SECONDS)}
            if len(states) < len(ids):
                raise NotFoundError(
                    f"round {self._round.name!r}: expected {len(ids)} groups in the queue, found {len(states)}; go on"
                    " with --resume"
                )
            state = self._state()
            if time.monotonic() >= look_at:
                began = time.monotonic()
                self._look(list(states.values()), state)
                look_at = began + max(_LOOK_SECONDS, _LOOK_FACTOR * (time.monotonic() - began))
                if (stopped := self._find_cost(state) or self._find_lack(state)) is not None:
                    return stopped
            if state.paused is not None and not state.num_leased:
                return Stopped(why=f"its run is paused: {state.paused or 'by a user'}")
            self._check()
        return None

    def _look(self, groups: Sequence[GroupState], state: RunState) -> None:
        self.attempts = self._reader.read()
        num_submitted = sum(group.num_launched for group in groups)
        progress = Progress(
            attempts=self.attempts,
            num_asked=len(self._round.tasks) * self._round.yardstick.n,
            num_running=state.num_leased,
            num_submitted=num_submitted,
            num_ended=num_submitted - sum(group.num_open for group in groups),
            seconds=time.monotonic() - self._began,
        )
        self._show(progress)

    def _find_cost(self, state: RunState) -> Stopped | None:
        """Stop before the rollouts that run are likely to pass the limit."""
        if self._max_cost is None or not self.attempts:
            return None
        if num_uncounted := sum(one.num_uncounted for one in self.attempts):
            return Stopped(
                why=f"the server did not count the tokens of {num_uncounted} calls, so --max-cost cannot be kept; let"
                " the agent ask for include_usage in its streams, or leave the limit out"
            )
        spent = sum(one.cost for one in self.attempts)
        coming = state.num_leased * spent / len(self.attempts)
        if spent + coming < self._max_cost:
            return None
        return Stopped(why=f"it cost {spent:.2f} $ of at most {self._max_cost:.2f} $ (--max-cost)")

    def _find_lack(self, state: RunState) -> Stopped | None:
        """Stop where rollouts need what no worker offers; a worker offers sandboxes only once it has tried them."""
        lacking = self._list_lacking() if state.num_queued and not state.num_leased else []
        if not lacking:
            self._lacks_since = None
            return None
        self._lacks_since = self._lacks_since or time.monotonic()
        if time.monotonic() - self._lacks_since < _LACK_SECONDS:
            return None
        lack = f"no worker offers {lacking[0]}, which rollouts need" if lacking[0] else "no worker is connected"
        return Stopped(why=f"{lack}; 'agent-layer workers' shows what each offers")

    def _list_lacking(self) -> list[str]:
        """Return needs of queued rollouts that no live worker meets together."""
        lease_seconds = self._dispatcher.settings.lease_seconds
        up = [worker for worker in self._dispatcher.workers() if worker.silent_seconds <= lease_seconds]
        offers = [set(str(worker.about.get("offers", "")).split()) for worker in up]
        waiting = self._dispatcher.inspector.needs(self._round.run)
        return [" and ".join(sorted(needs)) for needs in waiting if not any(needs <= offered for offered in offers)]

    def _drain(self, stopped: Stopped) -> None:
        """Hand out nothing more, and let rollouts end; a second Ctrl-C leaves them to a later start."""
        run, name = self._round.run, self._round.name
        seconds = self._dispatcher.settings.work_drain_seconds if stopped.by_user else _LAST_SECONDS
        with suppress(KeyboardInterrupt):
            if self._state().paused is None:
                self._dispatcher.pause(run, why=f"{stopped.why}; 'agent-layer eval --round {name} --resume' goes on")
            deadline = time.monotonic() + seconds
            if num_leased := self._state().num_leased:
                hint = f"waiting at most {seconds:g} s, Ctrl-C again gives up sooner"
                sys.stderr.write(f"\ragent-layer: {num_leased} rollouts still run; {hint}\n")
                sys.stderr.flush()
            while self._state().num_leased and time.monotonic() < deadline:
                self._check()
                time.sleep(_WAIT_SECONDS)

    def _await_stored(self, ids: Sequence[str]) -> None:
        """Wait until the store knows all that the dispatcher has accepted.

        Raises: NotWholeError: it does not within ``flush_seconds``.
        """
        groups = self._dispatcher.groups(ids) if ids else []
        num_accepted = {one.group_id: one.num_accepted or one.num_usable for one in groups}
        deadline = time.monotonic() + self._dispatcher.settings.flush_seconds
        while True:
            self.attempts = self._reader.read()
            stored = Counter(one.rollout_id.rpartition(".")[0] for one in self.attempts if one.is_accepted)
            if all(stored[group_id] >= num for group_id, num in num_accepted.items()):
                return
            if time.monotonic() > deadline:
                raise NotWholeError(
                    f"round {self._round.name!r}: expected all rollouts in the store, but some wait in logs; look at"
                    f" shipper.log there, then 'agent-layer eval --round {self._round.name}' shows the whole round"
                )
            time.sleep(_POLL_SECONDS)

    def _await_failed(self, ids: Sequence[str]) -> None:
        """Wait a little until the store knows the attempts of rollouts that came to nothing; some were never opened."""
        failed = [one for one in self._dispatcher.rollouts(ids) if one.accepted is None and one.errors]
        if not failed:
            return
        self.last_error = max(failed, key=lambda one: one.since).errors[-1]
        wanted = {make_trajectory_id(one.rollout_id, at) for one in failed for at in one.error_attempts}
        deadline = time.monotonic() + _FAILED_SECONDS
        while not wanted <= {one.trajectory_id for one in self.attempts} and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            self.attempts = self._reader.read()

    def _check(self) -> None:
        for check in self._checks:
            check()

    def _state(self) -> RunState:
        return self._dispatcher.runs([self._round.run])[0]


class RoundWorker:
    """The worker of a round: a process that ends with this one."""

    def __init__(self, process: SupervisedProcess) -> None:
        self._process = process

    def check(self) -> None:
        """Raise when the worker has ended.

        Raises: BadInputError: it cannot use the agent or the scorer. AgentFailedError: anything else.
        """
        if self._process.is_running:
            return
        log_tail = self._process.log_tail
        if self._process.process.returncode == _BAD_INPUT_STATUS:
            raise BadInputError(
                log_tail.rpartition("agent-layer: ")[2].strip() or "work: the worker refused its options"
            )
        raise AgentFailedError(
            f"worker: expected it to run, but it has ended; see {self._process.log}, which ends: {log_tail}"
        )

    def wait_ready(self, seconds: float) -> None:
        """Wait until it has loaded agent and scorer, so that a wrong name leaves nothing behind.

        Raises: as ``check``; AgentFailedError: it is not ready within this time.
        """
        if not self._process.wait_until_up(lambda: _READY in self._process.log.read_text(errors="replace"), seconds):
            self.check()
            raise AgentFailedError(
                f"worker: expected it to be ready within {seconds:g} s, but it is not; see {self._process.log}"
            )

    def stop(self) -> None:
        """End it; attempts that run return to the queue."""
        self._process.stop()


def start_worker(settings: Settings, one: Round, tasks: Sequence[Task], slots: int) -> RoundWorker:
    """Start a worker for the tasks of a round, in the current directory, and wait until it is ready.

    Raises: BadInputError: it cannot use the agent or the scorer. AgentFailedError: it ended for another reason.
    """
    needs = sorted({need for task in tasks for need in task.needs})
    arguments = ["work", *([] if one.agent.target is None else [one.agent.target]), f"--slots={slots}"]
    arguments += [f"--run={one.run}", f"--scorer={one.scorer}", *([f"--needs={','.join(needs)}"] if needs else [])]
    arguments += one.agent.command_options
    arguments += ["--", *one.agent.command] if one.agent.target is None else []
    log = settings.dir.absolute() / "runs" / one.run / "worker.log"
    log.unlink(missing_ok=True)
    variables = settings.environment() | _WORKER_VARIABLES
    command = [sys.executable, "-m", "agent_layer.cli", *arguments]
    worker = RoundWorker(start_supervised(command, variables, log, orphan_seconds=ORPHAN_SECONDS))
    try:
        worker.wait_ready(settings.start_seconds)
    except BaseException:
        worker.stop()
        raise
    return worker
