"""The whole stack on one machine: starts and stops an engine and a gateway, beside Redis and objects.

The first user of Redis starts it, and objects are a directory, so only engine and gateway are managed here. Both end
with this process, however it ends.
"""

import secrets
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from agent_layer.engines import Engine, register_engine, remove_ended_engines
from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.infra import SupervisedProcess, free_port, is_free, is_listening, open_redis, start_supervised
from agent_layer.local.compactor import run_compactor
from agent_layer.local.operator_key import ensure_api_key
from agent_layer.local.providers import run_provider_proxy
from agent_layer.local.vllm import VllmServer
from agent_layer.settings import Settings

ReportPhase = Callable[[str], None]
"""Receives a description of what the caller waits for."""

_GATEWAY_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The running processes, and the settings with their addresses."""

    settings: Settings
    engine: Engine | None
    """None: it was started without one."""
    processes: dict[str, SupervisedProcess]

    def check(self) -> None:
        """Raise EngineError when a process has ended."""
        for name, process in self.processes.items():
            if not process.is_running:
                raise EngineError(
                    f"{name}: expected it to run, but it has ended; see {process.log}, which ends: {process.log_tail}"
                )


@contextmanager
def run_stack(
    settings: Settings, engine: VllmServer | str | None, port: int = 0, report_phase: ReportPhase = lambda _: None
) -> Generator[Stack]:
    """Run everything during the block.

    Args:
        settings: places and addresses; a missing operator key is minted.
        engine: a vLLM to start, or the address of a running one; None where another party's model answers as the
            policy (``policy_url``), or agents call none.
        port: of the gateway; 0 means a free port.
        report_phase: receives a description of what the call waits for, several times a second.

    Raises:
        BadInputError: the port is taken; nothing has been started then.
        EngineError: the engine dies or returns no token ids.
        UnreachableError: Redis or the engine does not answer.
    """
    if not is_free(port):
        raise BadInputError(
            f"gateway port {port}: expected to be free, but another program listens there; stop it, or choose another"
            " with --port (0 takes a free one)"
        )
    settings = ensure_api_key(settings)
    with ExitStack() as cleanup:
        redis = cleanup.enter_context(open_redis(settings))
        processes: dict[str, SupervisedProcess] = {}
        remove_ended_engines(settings, redis)
        known = None
        if isinstance(engine, VllmServer):
            cleanup.callback(remove_ended_engines, settings, redis)
            cleanup.callback(engine.stop)
            processes["vLLM"] = engine.start()
            engine.wait(lambda seconds: report_phase(f"vLLM is starting ({seconds:.0f} s)"))
            known = register_engine(settings, redis, engine.url, location=str(engine.model), logprobs_mode="processed")
        elif engine is not None:
            report_phase(f"asking {engine}")
            known = register_engine(settings, redis, engine)
        if known is not None:
            settings = settings.model_copy(update={"vllm_urls": known.url})
        settings = cleanup.enter_context(run_provider_proxy(settings))
        settings, processes["gateway"] = start_gateway(settings, port)
        cleanup.callback(processes["gateway"].stop)
        cleanup.enter_context(run_compactor(settings))
        yield Stack(settings=settings, engine=known, processes=processes)


def start_gateway(settings: Settings, port: int = 0) -> tuple[Settings, SupervisedProcess]:
    """Start a gateway on loopback and wait until it answers: this one, not one that has the port already.

    Returns: settings with its address, and the process.
    Raises: UnreachableError: it ended, or does not answer.
    """
    port = port or free_port()
    url, log = f"http://127.0.0.1:{port}", settings.dir / "logs" / "gateway.log"
    ready = log.with_name(f"gateway-{secrets.token_hex(8)}.ready").absolute()
    command = [sys.executable, "-m", "agent_layer.gateway", f"--port={port}", f"--ready={ready}"]
    process = start_supervised(command, settings.environment(), log)
    serves = process.wait_until_up(lambda: ready.exists() and is_listening(url), _GATEWAY_SECONDS)
    ready.unlink(missing_ok=True)
    if not serves:
        process.stop()
        raise UnreachableError(
            f"gateway at {url}: expected it to serve within {_GATEWAY_SECONDS:.0f} s, but it does not; see {log},"
            f" which ends: {process.log_tail}"
        )
    return settings.model_copy(update={"gateway_url": url}), process


def shell_exports(settings: Settings) -> Iterator[str]:
    """Return shell lines that set the addresses for other commands."""
    variables = settings.environment()
    names = ("DIR", "REDIS_URL", "OBJECTS_URL", "NAMESPACE", "RUN", "GATEWAY_URL", "API_KEY")
    for name in (f"AGENT_LAYER_{name}" for name in names):
        if name in variables:
            yield f"export {name}={variables[name]}"
