"""veRL's own vLLM servers: which address and key they have, how weights arrive, and how dead ones are replaced."""

import asyncio
import os
import time
from argparse import Namespace
from typing import NamedTuple

import psutil
import ray
import torch
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from trainer_adapter.cluster.access import RequireKey, access_key

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL carries no types.

_HOST = "127.0.0.1"
_ENGINE_TITLE = "VLLM::"
"""Beginning of the titles of vLLM's engine and of its workers; a server starts them as processes of its own."""
_NAME_SECONDS = 60.0
"""Longest wait until Ray has forgotten a killed server."""
_POLL_SECONDS = 0.1
_RECEIVER = "trainer_adapter.cluster.weights.receiver.WeightReceiver"


class HeldWeights(NamedTuple):
    """What a server says of its weights."""

    version: int | None
    """That it received last, whole; None: none yet."""
    hashes: frozenset[str | None] = frozenset()
    """Of the weights that its processes loaded; empty on GPUs, where veRL's own receiver takes them."""


class ClusterServer(vLLMHttpServer):
    """One server. It listens on loopback, so that only this machine reaches it, and asks for a key on every route."""

    def _post_init(self, cuda_visible_devices: str) -> None:
        super()._post_init(cuda_visible_devices)
        self._server_address = _HOST

    async def run_server(self, args: Namespace) -> None:
        """Serve, behind the key."""
        args.middleware = [*args.middleware, f"{RequireKey.__module__}.{RequireKey.__name__}"]
        await super().run_server(args)

    def access_key(self) -> str:
        """Return the key that each request must carry."""
        return access_key()

    async def held_weights(self) -> HeldWeights:
        """Return what this server holds."""
        if torch.cuda.is_available():
            return HeldWeights(self.global_steps)
        return HeldWeights(self.global_steps, frozenset(await self.engine.collective_rpc("loaded_hash")))

    def process_id(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def _get_worker_extension_cls(self) -> str:
        return super()._get_worker_extension_cls() if torch.cuda.is_available() else _RECEIVER


class ClusterReplica(vLLMReplica):
    """veRL's replica, made of these servers. All of its processes run on this machine."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        self.server_class = ray.remote(ClusterServer)
        self._processes: dict[psutil.Process, str] = {}
        """With their names."""
        self.access_key = ""
        """Of the server that answers calls; empty before the launch."""

    async def launch_servers(self) -> None:
        """Launch all servers, and remember their processes and the key."""
        await super().launch_servers()
        self.access_key = await self.servers[0].access_key.remote()  # pyright: ignore[reportGeneralTypeIssues]  # see below
        self._processes = {}
        for server in self.servers:
            process = psutil.Process(await server.process_id.remote())  # pyright: ignore[reportGeneralTypeIssues]  # Ray's handles have the methods of their class
            self._processes[process] = "server"
            for below in process.children(recursive=True):
                title = " ".join(_command_of(below))
                if title.startswith(_ENGINE_TITLE):
                    self._processes[below] = title.strip()

    def holds(self, weights: HeldWeights) -> bool:
        """Whether all of its servers say that they hold these weights."""
        return all(held == weights for held in ray.get([one.held_weights.remote() for one in self.servers]))

    def explain_death(self) -> str | None:
        """Return which processes have ended; None: all run."""
        ended = [f"{name} (process {process.pid})" for process, name in self._processes.items() if _has_ended(process)]
        return f"{', '.join(ended)} has ended" if ended else None

    async def relaunch(self) -> None:
        """Launch servers in place of the present ones, which are killed with all their processes.

        Raises: TimeoutError: Ray still knows a killed server.
        """
        for server in self.servers:
            ray.kill(server)
        for process in self._processes:
            if not _has_ended(process):
                process.kill()
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


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
