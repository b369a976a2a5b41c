"""Registration of engines: join, leave, and the addresses that engines may have.

Only operators register engines, and only at allowed addresses. Otherwise a caller could make the gateway send prompts
of agents, and requests of its choice, to machines that only the gateway reaches.
"""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from redis import Redis

from agent_layer.engines.control import EngineControl
from agent_layer.engines.fingerprints import read_fingerprints
from agent_layer.engines.policies import list_policies
from agent_layer.engines.registry import Engine, EngineRegistry, LogprobsMode
from agent_layer.errors import BadInputError
from agent_layer.infra.redis import Keys
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
    report = EngineControl(url).probe()
    registry, place = open_engine_registry(settings, redis), location or report.location
    found = read_fingerprints(place)
    engine = Engine(
        url=url,
        run=settings.run,
        version=_version_of(redis, registry.keys, settings.run, place),
        location=place,
        model=report.model,
        logprobs_mode=logprobs_mode or settings.logprobs_mode,
        state="serving",
        epoch=0,
        started_from=place,
        tokenizer_hash=found.tokenizer_hash,
        template_hash=found.template_hash,
    )
    if location is None:
        return registry.register_unknown(engine)
    registry.register(engine)
    return engine


def join_engine(settings: Settings, redis: Redis, url: str, location: str | None = None) -> Engine:
    """Add an engine to the rotation of the settings' run; a drained one serves again.

    Raises:
        BadInputError: its address is not allowed. EngineError: it returns no token ids. UnreachableError: it does not
            answer.
    """
    url = check_allowed(url, settings)
    known = register_engine(settings, redis, url, location)
    registry = open_engine_registry(settings, redis)
    registry.change(url, is_drained=False, is_joined=True)
    return registry.read(url) or known


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
        if engine.run == settings.run and not EngineControl(engine.url, timeout_seconds=_HEALTH_SECONDS).is_healthy():
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
    return any(network is not None and address in network for network in map(_network_of, allowed))


def _network_of(entry: str):  # noqa: ANN202  # either of two classes without a common name
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None


def _version_of(redis: Redis, keys: Keys, run: str, location: str) -> int:
    policies = list_policies(redis, keys, run)
    same = [policy.number for policy in policies if policy.location == location]
    return max(same, default=policies[-1].number + 1 if policies else 0)
