"""The health of runs: what Redis and the files of their trainers say, and the findings that follow from it."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from redis import Redis

from agent_layer.dispatcher import REFUSED, Dispatcher, RunState
from agent_layer.engines import Engine, behind_seconds, open_engine_registry
from agent_layer.health.alarm_file import AlarmFile
from agent_layer.health.checks import CHECKS, STEP_CHECKS, LiveCheck, StepCheck
from agent_layer.health.evaluate import find_unhealthy_now
from agent_layer.health.findings import HealthFinding
from agent_layer.health.limits import set_live_limits
from agent_layer.health.measures import RunSnapshot
from agent_layer.health.progress import StepProgress, progress_path, read_progress
from agent_layer.infra import Keys
from agent_layer.schema import check_name
from agent_layer.settings import Settings
from agent_layer.state import read_loss

_REMEMBERED_STEPS: Final = 200
_ACTIVE_SECONDS: Final = 86_400.0


class RunHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one run, and what is wrong with it."""

    run: str
    reports: Sequence[StepProgress]
    """Reports of the newest steps, oldest first; none where the trainer runs on another machine."""
    facts: RunSnapshot
    findings: Sequence[HealthFinding]
    """What fires, the worst first."""

    @property
    def is_active(self) -> bool:
        """Whether it has work left, or made a step in the last day."""
        last = self.reports[-1].ended_at if self.reports else 0.0
        return bool(self.facts.num_waiting or self.facts.num_held) or self.facts.now - last < _ACTIVE_SECONDS

    def values(self) -> dict[str, float]:
        """Return what the checks measure, by their names; without those that are not known."""
        measured = {
            one.name: (one.measure(self.reports, one.steps) if len(self.reports) >= one.steps else None)
            if isinstance(one, StepCheck)
            else one.measure(self.facts)
            for one in CHECKS
        }
        return {name: value for name, value in measured.items() if value is not None}


class _Around(NamedTuple):
    """What holds for all runs of the namespace; see ``RunSnapshot``."""

    num_engines: int | None
    data_lost_at: float | None


class HealthReader:
    """Reads the health of the runs of one namespace."""

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        now: Callable[[], float] = time.time,
        read_reports: Callable[[str], list[StepProgress]] | None = None,
    ) -> None:
        self._settings = settings
        self._live = set_live_limits(settings.alarm_limits)
        self._redis = redis
        self._keys = Keys(settings.namespace)
        self._now = now
        self._dispatcher = Dispatcher(redis, settings)
        self._engines = open_engine_registry(settings, redis)
        self._read_reports = read_reports or self._read_progress

    @property
    def checks(self) -> Sequence[StepCheck | LiveCheck]:
        """The catalogue with the limits of the settings; checks of steps have those of their trainer."""
        return (*STEP_CHECKS, *self._live)

    def list_runs(self) -> list[str]:
        """Return the runs with work, those that a trainer of this directory makes or made, and those with an engine.

        Where Redis lost all of them, the settings' run is left to show that.
        """
        here = [path.parent.name for path in (self._settings.dir / "runs").glob("*/progress.jsonl")]
        known = {*here, *(one.run for one in self._dispatcher.runs()), *(one.run for one in self._engines.engines())}
        return sorted(known) or ([self._settings.run] if read_loss(self._redis, self._keys) else [])

    def read(self, runs: Sequence[str]) -> list[RunHealth]:
        """Return what is known of these runs, in their order."""
        states = {one.run: one for one in self._dispatcher.runs(runs)} if runs else {}
        engines = [one for one in self._engines.engines() if not one.is_drained] if runs else []
        around = _Around(
            num_engines=None if self._settings.policy_url or not self._engines.live_gateways() else len(engines),
            data_lost_at=read_loss(self._redis, self._keys),
        )
        offers = self._offers() if any(one.num_queued + one.num_delayed for one in states.values()) else []
        own = {run: [one for one in engines if one.run == run] for run in runs}
        return [self._read(run, states.get(run), own[run], offers, around) for run in runs]

    def _read(
        self,
        run: str,
        state: RunState | None,
        engines: Sequence[Engine],
        offers: Sequence[set[str]],
        around: _Around,
    ) -> RunHealth:
        reports = self._read_reports(run)[-_REMEMBERED_STEPS:]
        now = self._now()
        ages = [(behind_seconds(self._redis, self._keys, one.run, one.version, now), one.url) for one in engines]
        behind = max(ages, default=(None, None))
        held = max(((now - (one.held_since or now), one.url) for one in engines), default=(None, None))
        facts = RunSnapshot(
            now=now,
            step_times=[one.ended_at for one in reports[-20:]],
            engine_behind_seconds=behind[0],
            engine_behind=behind[1],
            engine_held_seconds=held[0],
            engine_held=held[1],
            num_engines=around.num_engines,
            data_lost_at=around.data_lost_at,
        )
        if state is not None:
            facts = self._with_work(facts, state, offers)
        found = [*self._find_in_steps(run, reports), *find_unhealthy_now(facts, self._live)]
        found.sort(key=lambda one: one.level != "stop")
        return RunHealth(run=run, reports=reports, facts=facts, findings=found)

    def _find_in_steps(self, run: str, reports: Sequence[StepProgress]) -> Sequence[HealthFinding]:
        """Return the findings of the last step; a step that ended the run was not done, so only the file has them."""
        kept = AlarmFile(self._settings, run).read()
        if reports and reports[-1].ended_at >= kept.judged_at:
            return reports[-1].health
        return [one.finding for one in kept.firing.values() if one.finding.since_step is not None]

    def _with_work(self, facts: RunSnapshot, state: RunState, offers: Sequence[set[str]]) -> RunSnapshot:
        num_waiting, inspector = state.num_queued + state.num_delayed, self._dispatcher.inspector
        needs: Mapping[frozenset[str], int] = inspector.needs(state.run) if state.num_queued else {}
        unserved = {need: num for need, num in needs.items() if not any(need <= offered for offered in offers)}
        oldest = next(inspector.read_groups(islice(inspector.open_ids(state.run), 1)), None) if num_waiting else None
        return msgspec.structs.replace(
            facts,
            num_waiting=num_waiting,
            num_held=state.num_leased,
            num_accepted=state.num_accepted,
            num_accepted_lately=state.accepted_lately,
            num_dead=state.num_dead,
            is_paused=state.paused is not None,
            is_refused=(state.paused or "").startswith(REFUSED),
            oldest_wait_seconds=max(0.0, facts.now - oldest.queued_at) if oldest else None,
            num_unserved=sum(unserved.values()),
            unserved_needs=" ".join(sorted(max(unserved, key=lambda need: unserved[need], default=()))) or None,
            num_judged=state.num_judged,
            failure_rate=state.failure_rate,
        )

    def _offers(self) -> list[set[str]]:
        """Return what the workers offer that are up and take work, one set for each."""
        return [
            set(str(one.about.get("offers") or "").split())
            for one in self._dispatcher.workers()
            if one.silent_seconds <= self._settings.lease_seconds and not one.is_draining
        ]

    def _read_progress(self, run: str) -> list[StepProgress]:
        return read_progress(progress_path(self._settings, check_name(run, "run")))
