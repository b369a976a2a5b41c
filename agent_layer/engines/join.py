"""Registration of engines: join, drain, leave, and the addresses that engines may have.

Only operators register engines, and only at allowed addresses. Otherwise a caller could make the gateway send prompts
of agents, and requests of its choice, to machines that only the gateway reaches.
"""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from redis import Redis

from agent_layer.engines.control import EngineControl
from agent_layer.engines.fingerprints import read_fingerprints
from agent_layer.engines.kinds import KINDS, LogprobsMode
from agent_layer.engines.policies import list_policies, newest_policy
from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.errors import BadInputError, EngineError, NotFoundError
from agent_layer.infra import Keys
from agent_layer.settings import Settings

_HEALTH_SECONDS = 10.0
_LOOPBACK = ("127.0.0.0/8", "::1/128", "localhost")


def open_engine_registry(settings: Settings, redis: Redis) -> EngineRegistry:
    """Return the engine registry of the settings' namespace."""
    return EngineRegistry(redis, Keys(settings.namespace), settings.gateway_seconds)


def register_engine(
    settings: Settings, redis: Redis, url: str, location: str | None = None, logprobs_mode: LogprobsMode | None = None
) -> Engine:
    """Probe an engine and register what it serves.

    A registered engine keeps its version, unless ``location`` says that it was restarted from there: its version is
    then the one with this location, else the next one of the run.

    Raises: EngineError: it returns no token ids. UnreachableError: it does not answer.
    """
    registry = open_engine_registry(settings, redis)
    control = registry.control(url)
    engine = _probe(settings, redis, control, location)
    if logprobs_mode:
        engine = msgspec.structs.replace(engine, logprobs_mode=logprobs_mode)
    known = registry.read(url)
    if location is None and (known is None or known.kind == engine.kind):  # else another program serves there now
        return registry.register_unknown(engine)
    registry.register(engine, control.access_key)
    return engine


def join_engine(
    settings: Settings, redis: Redis, url: str, location: str | None = None, *, is_pushed: bool = False
) -> Engine:
    """Add an engine to the rotation of the settings' run; a drained one serves again.

    A new engine is probed, and loads the newest version of the run where that is a directory which it does not have
    yet. Only then is it registered, and gets calls. So does one that a switch left half-way. To join again changes
    nothing else.

    Args:
        settings: of the run.
        redis: holds the registry.
        url: the engine's address.
        location: where it loaded its weights, if it was just started; None: what it says itself.
        is_pushed: its owner pushes weights into it. It gets calls after the first ``EngineRegistry.hold`` that releases
            it, and nothing else loads it.

    Raises:
        BadInputError: its address is not allowed. EngineError: it returns no token ids, or refuses the weights.
            UnreachableError: it does not answer.
    """
    url, registry = check_allowed(url, settings), open_engine_registry(settings, redis)
    known = registry.read(url)
    if known is None or location is not None or known.is_pushed != is_pushed:
        control = registry.control(url)
        engine = _probe(settings, redis, control, location)
        engine = _as_pushed(engine) if is_pushed else _load_newest(engine, settings, redis, control)
        registry.register(msgspec.structs.replace(engine, is_joined=True), control.access_key)
    elif known.state != "serving" and not is_pushed:
        _switch_to_newest(known, settings, redis)
    registry.change(url, is_drained=False, is_joined=True)
    found = registry.read(url)
    if found is None:
        raise NotFoundError(f"engine {url}: expected it to be registered, but it left meanwhile; join it again")
    return found


def drain_engine(settings: Settings, redis: Redis, url: str, seconds: float = 0.0) -> None:
    """Send an engine no more calls; new weights still arrive.

    Args:
        settings: name the namespace.
        redis: holds the registry.
        url: the engine's address.
        seconds: longest wait for its calls in flight; 0: no wait.

    Raises: NotFoundError: it is not registered. EngineError: calls are in flight for longer; none is cut.
    """
    registry = open_engine_registry(settings, redis)
    drains = registry.change(url, is_drained=True)
    if seconds:
        registry.wait_drained(url, drains, seconds)


def leave_engine(settings: Settings, redis: Redis, url: str) -> None:
    """Remove an engine from the registry; its calls in flight continue.

    Raises: NotFoundError: it is not registered.
    """
    registry = open_engine_registry(settings, redis)
    registry.change(url, is_drained=True)
    registry.forget(url)


def remove_ended_engines(settings: Settings, redis: Redis) -> None:
    """Remove engines of the run that no longer answer, because no trainer could load weights into them."""
    registry = open_engine_registry(settings, redis)
    for engine in registry.engines():
        if engine.run == settings.run and not registry.control(engine.url, _HEALTH_SECONDS).is_healthy():
            registry.forget(engine.url)


def check_allowed(url: str, settings: Settings) -> str:
    """Return an engine's address without /v1 and slash.

    Raises: BadInputError: it is not an address, or not an allowed one.
    """
    address = read_engine_address(url)
    parts = urlsplit(address)
    allowed = [*settings.engine_urls, *settings.allowed_engines]
    if address in allowed or (not parts.path and _is_allowed_host(parts.hostname or "", [*allowed, *_LOOPBACK])):
        return address
    raise BadInputError(
        f"engine {address}: expected a loopback address or one that AGENT_LAYER_ENGINE_ALLOW or"
        f" AGENT_LAYER_VLLM_URLS names, found another; add its host, its network (10.0.0.0/8) or its URL there"
    )


def read_engine_address(url: str) -> str:
    """Return an engine's address without /v1 and slash.

    Raises: BadInputError: it is no address.
    """
    address = url.strip().rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(address)
        has_host = parts.hostname is not None and (parts.port or 0) >= 0  # a port that is none raises
    except ValueError:
        has_host, parts = False, urlsplit("")
    if not has_host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadInputError(f"engine {url!r}: expected http://HOST:PORT without a key in it; correct the address")
    return address


def _is_allowed_host(host: str, allowed: Sequence[str]) -> bool:
    """Whether a host name is listed by name, or an IP address is listed itself or by network. No name is resolved."""
    try:
        address = ip_address(host)
    except ValueError:
        return host in allowed
    return any(network is not None and address in network for network in map(_parse_network, allowed))


def _parse_network(entry: str):  # noqa: ANN202  # either of two classes without a common name
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None


def _find_version(redis: Redis, keys: Keys, run: str, location: str) -> int:
    policies = list_policies(redis, keys, run)
    same = [policy.number for policy in policies if policy.location == location]
    return max(same, default=policies[-1].number + 1 if policies else 0)


def _probe(settings: Settings, redis: Redis, control: EngineControl, location: str | None) -> Engine:
    """Ask an engine what it serves."""
    report = control.probe()
    place = location or report.location
    found = read_fingerprints(place)
    return Engine(
        url=control.url,
        run=settings.run,
        version=_find_version(redis, Keys(settings.namespace), settings.run, place),
        location=place,
        model=report.model,
        logprobs_mode=KINDS[report.kind].logprobs_mode or settings.logprobs_mode,
        state="serving",
        epoch=0,
        kind=report.kind,
        started_from=place,
        is_assumed=location is None,
        tokenizer_hash=found.tokenizer_hash,
        template_hash=found.template_hash,
    )


def _as_pushed(engine: Engine) -> Engine:
    """Keep calls away from an engine until its owner has announced what it serves."""
    return msgspec.structs.replace(engine, is_pushed=True, state="loading", started_from=None)


def _load_newest(engine: Engine, settings: Settings, redis: Redis, control: EngineControl) -> Engine:
    """Load the newest version of the run into an engine that gets no calls yet."""
    policy = newest_policy(redis, Keys(settings.namespace), settings.run)
    if policy is None or not Path(policy.location).is_dir():
        return engine
    if policy.location == engine.location and not engine.is_assumed:
        return engine
    model = control.load(Path(policy.location))
    found = msgspec.structs.asdict(read_fingerprints(policy.location))
    return msgspec.structs.replace(
        engine, version=policy.number, location=policy.location, model=model, is_assumed=False, **found
    )


def _switch_to_newest(engine: Engine, settings: Settings, redis: Redis) -> None:
    """Load the newest version into an engine that an earlier switch left half-way."""
    policy = newest_policy(redis, Keys(settings.namespace), engine.run)
    if policy is None or not Path(policy.location).is_dir():
        raise EngineError(
            f"engine {engine.url}: it is {engine.state}, and no weights of run {engine.run} are here to load into it;"
            " start its trainer, or leave and join it with --location after a restart"
        )
    registry, location = open_engine_registry(settings, redis), Path(policy.location)
    control = registry.control(engine.url)
    registry.switch(engine.url, policy.number, policy.location, lambda: control.load(location), settings.drain_seconds)
