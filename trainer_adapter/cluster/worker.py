"""veRL's worker of actor, rollout and reference, with what an update changes from step to step."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed
from omegaconf import DictConfig
from peft import LoraConfig as PeftConfig
from torch import Tensor
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.device import get_device_id, get_device_name
from verl.workers import engine_workers
from verl.workers.engine import BaseEngine
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine_workers import ActorRolloutRefWorker

from trainer_adapter.cluster.nodes.watch import ServerProcesses, find_own_process
from trainer_adapter.cluster.weights.digest import hash_weights
from trainer_adapter.verl import find_adapter, load_engines, merged_weights

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false, reportUntypedFunctionDecorator=false
# veRL carries no types.


def _join_group(timeout_second: int | None = None, backend: str | None = None) -> None:
    """Join veRL's process group with gloo: on a CPU, veRL's own function names gloo twice for one device."""
    if not torch.distributed.is_initialized():
        limit = None if timeout_second is None else timedelta(seconds=timeout_second)
        torch.distributed.init_process_group((backend or "gloo").removeprefix("cpu:"), timeout=limit)


def hold_rate(optimizer: Optimizer, scheduler: LRScheduler, rate: float) -> None:
    """Set the rate of an optimizer, also as that to which veRL's constant scheduler returns after each of its steps."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    scheduler.base_lrs = [rate] * len(optimizer.param_groups)


class ClusterWorker(ActorRolloutRefWorker):
    """One process of the trained model."""

    def __init__(self, config: DictConfig, role: str, distillation_config: object = None, **options: object) -> None:
        load_engines(get_device_name())
        if get_device_name() == "cpu":
            engine_workers.initialize_global_process_group_ray = _join_group  # pyright: ignore[reportPrivateImportUsage]
            # a reference is offloaded to pinned memory, which needs an accelerator
            transformer_impl.CPUOffloadPolicy = partial(_unpinned_policy)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]
        super().__init__(config, role, distillation_config, **options)  # pyright: ignore[reportArgumentType]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Make the models; an adapter begins as in the embedded driver with the same seed."""
        torch.manual_seed(self.config.actor.data_loader_seed)
        super().init_model()
        adapter = self.find_adapter()
        if self.actor is not None and adapter is not None:  # veRL would send bfloat16, and merge in place
            engine = self.actor.engine
            engine._merged_lora_per_tensor_param = partial(_merge, engine, adapter)  # noqa: SLF001
            if not self.config.model.lora.get("merge", False):
                engine.get_per_tensor_param = partial(_export_adapter, engine.get_per_tensor_param)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def find_adapter(self) -> PeftConfig | None:
        """Return the configuration of the trained adapter; None: whole weights are trained, or no model is here."""
        return None if self.actor is None else find_adapter(self.actor.engine.module, Path(self.config.model.path))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_learning_rate(self, rate: float) -> None:
        """Change the rate of the optimizer until the next call."""
        engine = self.actor.engine  # pyright: ignore[reportOptionalMemberAccess]
        hold_rate(engine.optimizer, engine.lr_scheduler, rate)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def hash_weights(self) -> str:
        """Return the hash of the whole weights, as they are sent; each process has a part, so all take part."""
        return hash_weights(self.actor.engine.get_per_tensor_param()[0])  # pyright: ignore[reportOptionalMemberAccess]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def find_process(self) -> ServerProcesses:
        """Return this process, and where it is."""
        return find_own_process(f"rank {self.rank}")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def forget_server(self) -> None:
        """Look for the server of this process again, which was replaced, before weights are sent to it."""
        self.rollout.server_handle = None


def _merge(engine: BaseEngine, adapter: PeftConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights that the adapter makes, as veRL's own method does."""
    yield from merged_weights(engine.module, adapter)
    if engine._is_offload_param:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # of FSDP's engines
        transformer_impl.offload_fsdp_model_to_cpu(engine.module)  # pyright: ignore[reportPrivateImportUsage]


def _export_adapter(
    export: Callable[..., tuple[Iterable[tuple[str, Tensor]], dict[str, object] | None]], **options: object
) -> tuple[Iterator[tuple[str, Tensor]], dict[str, object] | None]:
    """Return the adapter alone, by PEFT's names, and its configuration: servers read what it adapts from files."""
    tensors, adapter = export(**{**options, "base_sync_done": True})
    return ((name, tensor.to(get_device_id())) for name, tensor in tensors), adapter


def _unpinned_policy(*, pin_memory: bool = True) -> CPUOffloadPolicy:
    del pin_memory
    return CPUOffloadPolicy(pin_memory=False)
