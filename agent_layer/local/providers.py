"""LiteLLM server as a child process, started when a model name refers to a provider."""

import secrets
import sys
from collections.abc import Generator
from contextlib import contextmanager

from agent_layer.errors import EngineError
from agent_layer.gateway import read_model_names
from agent_layer.infra import free_port, is_listening, start_supervised
from agent_layer.settings import Settings

_START_SECONDS = 120.0
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise its import downloads the price list: 10 s without a network
}


@contextmanager
def run_provider_proxy(settings: Settings) -> Generator[Settings]:
    """Run LiteLLM during the block if model names in the settings need it and no server is configured.

    Returns: settings with its address.
    Raises: EngineError: it does not start. BadInputError: the model names cannot be read.
    """
    if settings.provider_url is not None or not read_model_names(settings.models).needs_provider:
        yield settings
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    found = {"provider_url": url, "provider_key": f"pk-{secrets.token_urlsafe(24)}"}
    mine = settings.model_copy(update=found)
    command = [sys.executable, "-m", "agent_layer.local.litellm_server", f"--port={port}"]
    process = start_supervised(command, mine.environment() | _ENVIRONMENT, settings.dir / "logs" / "litellm.log")
    try:
        if not process.wait_until_up(lambda: is_listening(url), _START_SECONDS):
            raise EngineError(
                f"LiteLLM: expected it to serve within {_START_SECONDS:.0f} s, but it does not; the extra 'litellm'"
                f" brings it; see {process.log}, which ends: {process.log_tail}"
            )
        yield mine
    finally:
        process.stop()
