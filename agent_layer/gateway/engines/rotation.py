"""Engines by run: which serve, how busy they are, and which missed their health checks.

A run's calls go to its own engines. A run without engines is answered by those of the gateway's own run. So evaluations
and trials need no engine of their own, and a trained run never gets foreign weights.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count

from agent_layer.engines import Engine
from agent_layer.gateway.engines.metrics import Gauges
from agent_layer.gateway.engines.routing import Load, choose_engine

_NO_HEADERS: Mapping[str, str] = {}
_NUM_MISSES = 2
"""Consecutive missed health checks after which an engine is unhealthy; one failed call is enough."""


class Rotation:
    """Engines by run.

    Args:
        own_run: of the gateway.
        urls: engines that the settings name; none: all in the registry. Those that joined at run time are used besides.
        max_staleness: versions that an engine may be behind its run's newest; None: any number.
        limit: returns how many calls an engine gets at a time, from the number until now, the calls in flight and the
            part of its cache in use; None: any number.
    """

    def __init__(
        self,
        own_run: str,
        urls: Sequence[str] = (),
        max_staleness: int | None = None,
        limit: Callable[[int | None, int, float], int | None] | None = None,
    ) -> None:
        self._limit = limit
        self._own_run = own_run
        self._urls = urls
        self._max_staleness = max_staleness
        self._engines: dict[str, Engine] = {}
        self._headers: dict[str, dict[str, str]] = {}
        """By address, of engines that ask for a key."""
        self._loads: dict[str, Load] = {}
        self._misses: dict[str, int] = {}
        self._open: dict[str, list[Load]] = {}
        """By run, for every run that has an engine in the registry."""
        self._turns = count(1)

    @property
    def engines(self) -> list[Engine]:
        """Engines that may be sent to when they serve."""
        return [engine for engine in self._engines.values() if self._is_used(engine)]

    @property
    def all_engines(self) -> list[Engine]:
        """Everything in the registry."""
        return list(self._engines.values())

    @property
    def has_limit(self) -> bool:
        """Whether it matters how old an engine's weights are."""
        return self._max_staleness is not None

    def update(
        self, engines: Iterable[Engine], newest: Mapping[str, int], access_keys: Mapping[str, str] | None = None
    ) -> None:
        """Replace what is known of all engines.

        Args:
            engines: all in the registry.
            newest: by run the highest policy version that is registered; runs may be missing.
            access_keys: by address, of engines that ask for one.
        """
        self._headers = {url: {"Authorization": f"Bearer {key}"} for url, key in (access_keys or {}).items()}
        self._engines = {engine.url: engine for engine in engines}
        busy = {url: load for url, load in self._loads.items() if url in self._engines or load.in_flight}
        self._loads = busy | {url: Load(url=url) for url in self._engines if url not in busy}
        self._open = {engine.run: [] for engine in self._engines.values()}
        for engine in self.engines:
            if self._is_open(engine, newest):
                self._open[engine.run].append(self._loads[engine.url])

    def choose(self, run: str, kept: str | None, without: Collection[str] = ()) -> Engine | None:
        """Choose an engine for a call of this run.

        Args:
            run: of the rollout that calls.
            kept: address of the engine that the rollout has.
            without: addresses of engines that shall not answer.
        """
        loads = self._open.get(run)
        if loads is None:
            loads = self._open.get(self._own_run)
        if loads and without:
            loads = [load for load in loads if load.url not in without]
        if loads and self._limit:
            loads = [load for load in loads if load.has_room]
        if not loads:
            return None
        load = loads[0] if len(loads) == 1 else choose_engine(loads, kept)
        if load.url != kept:
            load.turn = next(self._turns)
        return self._engines[load.url]

    def has_other(self, run: str, failed: Collection[str]) -> bool:
        """Whether a healthy engine, none of the failed ones, could answer a call of this run."""
        loads = self._open.get(run, self._open.get(self._own_run, []))
        return any(load.is_well and load.url not in failed for load in loads)

    def make_headers(self, url: str) -> Mapping[str, str]:
        """Return what a request to an engine must carry."""
        return self._headers.get(url, _NO_HEADERS)

    def get_load(self, url: str) -> Load:
        """How busy an engine is."""
        return self._loads.setdefault(url, Load(url=url))

    def record_success(self, url: str, gauges: Gauges | None) -> None:
        """Record that an engine is healthy, and how busy it is; None: it does not report that."""
        load, self._misses[url] = self.get_load(url), 0
        load.is_well = True
        if gauges:
            load.others = max(0, gauges.running + gauges.waiting - load.in_flight)
            load.waiting, load.cache_usage = gauges.waiting, gauges.cache_usage
            if self._limit:
                load.limit = self._limit(load.limit, load.in_flight, load.cache_usage)

    def record_miss(self, url: str) -> None:
        """Record a missed health check."""
        self._misses[url] = self._misses.get(url, 0) + 1
        if self._misses[url] >= _NUM_MISSES:
            self.record_failure(url)

    def record_failure(self, url: str) -> None:
        """Record a failed call: other engines come first until a health check succeeds."""
        self.get_load(url).is_well = False

    def explain_none(self, run: str, seconds: float) -> str:
        """Explain why a call of this run found no engine."""
        run = run if run in self._open else self._own_run
        states = [f"{engine.url} is {self._find_state(engine)}" for engine in self.engines if engine.run == run]
        found = ", ".join(states) or "none is registered"
        return (
            f"gateway: expected an engine of run {run} to serve within {seconds:.0f} s, but {found}; look at the"
            " trainer that was switching weights, or start an engine"
        )

    def _find_state(self, engine: Engine) -> str:
        if engine.state != "serving":
            return engine.state
        if engine.is_drained:
            return "drained by an operator"
        load = self.get_load(engine.url)
        if not load.has_room:
            used = f"{100 * load.cache_usage:.0f} % of its cache is in use"
            return f"at its limit of {load.limit} calls from here ({used}; adaptive_concurrency)"
        return f"serving version {engine.version}, which is too old"

    def _is_used(self, engine: Engine) -> bool:
        return not self._urls or engine.is_joined or engine.url in self._urls

    def _is_open(self, engine: Engine, newest: Mapping[str, int]) -> bool:
        if engine.state != "serving" or engine.is_drained:
            return False
        behind = newest.get(engine.run, engine.version) - engine.version
        return self._max_staleness is None or behind <= self._max_staleness
