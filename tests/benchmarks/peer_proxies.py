"""Other projects' proxies in the gateway's benchmark: LiteLLM's, and Agent Lightning's."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from bench_peers import PEERS_PYTHON
from proxies import HERE, Door, Proxy, start_process

from agent_layer.infra.processes.addresses import free_port

__all__ = ["start_agent_lightning", "start_litellm"]

_NUM_ROLLOUTS = 64
_START_SECONDS = 120.0


@contextmanager
def start_litellm(directory: Path, engine_url: str) -> Iterator[Proxy]:
    """LiteLLM's proxy as its documentation starts it, one worker; it records nothing."""
    port, key, config = free_port(), _new_key(), directory / "litellm.yaml"
    model = f"{{model_name: policy, litellm_params: {{model: hosted_vllm/policy, api_base: '{engine_url}/v1'}}}}"
    config.write_text(f"model_list: [{model}]\n")
    command = [str(PEERS_PYTHON.with_name("litellm")), f"--config={config}", f"--port={port}", "--host=127.0.0.1"]
    with start_process(command, port, directory / "litellm.log", _environment(key)) as pid:
        _wait_alive(port)
        yield Proxy(name="LiteLLM", pid=pid, new_door=lambda: Door(f"http://127.0.0.1:{port}/v1", key))


@contextmanager
def start_agent_lightning(directory: Path, engine_url: str) -> Iterator[Proxy]:
    """Agent Lightning's proxy with its own defaults; each rollout has its own address."""
    port, key, log = free_port(), _new_key(), directory / "agent_lightning.log"
    command = [str(PEERS_PYTHON), str(HERE / "agent_lightning_proxy.py"), str(port), engine_url, str(_NUM_ROLLOUTS)]
    with start_process(command, port, log, _environment(key)) as pid:
        _wait_alive(port)
        paths = cycle(_wait_paths(log))
        new_door = lambda: Door(f"http://127.0.0.1:{port}{next(paths)}/v1", key)  # noqa: E731  # as short as its peer
        yield Proxy(name="Agent Lightning", pid=pid, new_door=new_door)


def _wait_paths(log: Path) -> list[str]:
    deadline = time.monotonic() + _START_SECONDS
    while len(paths := [line for line in log.read_text().splitlines() if line.startswith("/rollout/")]) < _NUM_ROLLOUTS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Agent Lightning opened {len(paths)} rollouts; {log} ends: {log.read_text()[-800:]}")
        time.sleep(0.1)
    return paths


def _wait_alive(port: int) -> None:
    """They listen long before they serve."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"port {port}: nothing served within {_START_SECONDS:.0f} s")


def _new_key() -> str:
    return f"sk-{secrets.token_hex(24)}"


def _environment(key: str) -> dict[str, str]:
    return {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
