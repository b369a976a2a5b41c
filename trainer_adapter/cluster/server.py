"""veRL's own vLLM servers: which address and key they have, how weights arrive, and how dead ones are replaced."""

import asyncio
import time
from argparse import Namespace
from collections.abc import Callable
from typing import NamedTuple

import ray
import torch
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_PATH
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.lora.request import LoRARequest

from agent_layer.engines import ADAPTER_SUFFIX
from trainer_adapter.cluster.key import App, Message, Receive, RequireKey, Send, access_key
from trainer_adapter.cluster.nodes.machine import list_engine_processes
from trainer_adapter.cluster.nodes.watch import ServerEnd, ServerProcesses, explain_end, kill_server
from trainer_adapter.cluster.overrides import is_reached_from_other_machines

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL carries no types.

_HOST = "127.0.0.1"
_NAME_SECONDS = 60.0
"""Longest wait until Ray has forgotten a killed server."""
_POLL_SECONDS = 0.1
_RECEIVER = "trainer_adapter.cluster.weights.receiver.WeightReceiver"


class HeldWeights(NamedTuple):
    """What a server says of its weights."""

    version: int | None
    """Version that it received last, whole; None: none yet."""
    hashes: frozenset[str | None] = frozenset()
    """Hashes of the weights that its processes loaded; empty on GPUs, where veRL's own receiver takes them."""


class NameAdapter:
    """ASGI middleware that gives veRL's adapter a name: veRL's own calls choose it by number, and HTTP has none."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let the application answer."""
        if scope["type"] == "http":
            models = scope["app"].state.openai_serving_models  # pyright: ignore[reportAttributeAccessIssue]
            name = models.base_model_paths[0].name + ADAPTER_SUFFIX
            models.lora_requests.setdefault(name, LoRARequest(name, VLLM_LORA_INT_ID, VLLM_LORA_PATH))
        await self._app(scope, receive, send)


class ClusterServer(vLLMHttpServer):
    """One server. It asks for a key on every route, and listens on loopback, so that only this machine reaches it.

    On a joined cluster it listens at the address of its machine, as veRL's does, because gateways may be on another.
    """

    def _post_init(self, cuda_visible_devices: str) -> None:
        super()._post_init(cuda_visible_devices)
        if not is_reached_from_other_machines():
            self._server_address = _HOST

    async def run_server(self, args: Namespace) -> None:
        """Serve, behind the key."""
        own = [NameAdapter, RequireKey] if self.lora_as_adapter else [RequireKey]  # the last one is asked first
        args.middleware = [*args.middleware, *(f"{one.__module__}.{one.__name__}" for one in own)]
        await super().run_server(args)

    async def collective_rpc(
        self,
        method: str | Callable[..., object],
        timeout: float | None = None,  # noqa: ASYNC109  # veRL's signature
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> None:
        """Call a method of each vLLM worker; weights from veRL's separate trainer come without what they adapt."""
        if method == "update_weights_from_ipc" and self.lora_as_adapter:
            own = self.model_config
            found = {"r": own.lora_rank, "lora_alpha": own.lora_alpha, "target_modules": own.target_modules}
            kwargs = {"peft_config": found, "base_sync_done": True, **(kwargs or {})}
        await super().collective_rpc(method, timeout, args, kwargs)

    def access_key(self) -> str:
        """Return the key that each request must carry."""
        return access_key()

    async def held_weights(self) -> HeldWeights:
        """Return what this server holds."""
        if torch.cuda.is_available():
            return HeldWeights(self.global_steps)
        return HeldWeights(self.global_steps, frozenset(await self.engine.collective_rpc("loaded_hash")))

    def processes(self) -> ServerProcesses:
        """Return the processes of this server and its engine, and where they are."""
        return ServerProcesses(
            ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), list_engine_processes()
        )

    def _get_worker_extension_cls(self) -> str:
        return super()._get_worker_extension_cls() if torch.cuda.is_available() else _RECEIVER


class ClusterReplica(vLLMReplica):
    """veRL's replica, made of these servers."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        self.server_class = ray.remote(ClusterServer)
        self._processes: list[ServerProcesses] = []
        """Of each server."""
        self.access_key = ""
        """Of the server that answers calls; empty before the launch."""

    async def launch_servers(self) -> None:
        """Launch all servers, and remember their processes and the key."""
        await super().launch_servers()
        self.access_key = await self.servers[0].access_key.remote()  # pyright: ignore[reportGeneralTypeIssues]  # Ray's handles have the methods of their class
        self._processes = await asyncio.gather(*(server.processes.remote() for server in self.servers))

    def holds(self, weights: HeldWeights) -> bool:
        """Whether all of its servers say that they hold these weights."""
        return all(held == weights for held in ray.get([one.held_weights.remote() for one in self.servers]))

    def find_end(self) -> ServerEnd | None:
        """Return which processes have ended, and whether with their machine; None: all run."""
        ends = [end for server in self._processes if (end := explain_end(server))]
        if not ends:
            return None
        return ServerEnd(", ".join(end.why for end in ends), is_machine=any(end.is_machine for end in ends))

    async def relaunch(self) -> None:
        """Launch servers in place of the present ones, which are killed with all their processes.

        Raises: TimeoutError: Ray still knows a killed server.
        """
        for server in self.servers:
            ray.kill(server)
        for processes in self._processes:
            await asyncio.to_thread(kill_server, processes)
        for name in self._server_names():
            await asyncio.to_thread(_wait_unnamed, name)
        self.servers = []
        await self.launch_servers()

    def _server_names(self) -> list[str]:
        prefix = self._get_server_name_prefix()
        return [f"{prefix}server_{self.replica_rank}_{rank}{self.name_suffix}" for rank in range(self.nnodes)]


def _wait_unnamed(name: str) -> None:
    deadline = time.monotonic() + _NAME_SECONDS
    while time.monotonic() < deadline:
        try:
            ray.get_actor(name)
        except ValueError:  # no actor has this name
            return
        time.sleep(_POLL_SECONDS)
    raise TimeoutError(f"server {name}: expected Ray to forget it within {_NAME_SECONDS:g} s after it was killed")
