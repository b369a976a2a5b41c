"""Prerequisites of veRL: a CPU platform, a process group, and its engine for the CPU.

veRL supports CUDA, ROCm and Ascend, and uses them where present. On other machines the CPU becomes a platform through
veRL's plug-in interface. All of this must happen before veRL's engines are imported, because they ask for the device at
import.
"""

import os
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import get_platform, set_platform

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false, reportMissingTypeArgument=false
# veRL and much of torch.distributed carry no types.
# pyright: reportIncompatibleMethodOverride=false, reportAssignmentType=false
# veRL declares properties where constants do, and an index where the CPU has a name.


_ONE_PROCESS = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""veRL's Worker insists on torchrun's variables; without torchrun the address is never used: the group is one process.
"""


class CpuDevice(ModuleType):
    """``torch.cpu`` with the functions that veRL expects of an accelerator's module."""

    def __getattr__(self, name: str) -> object:
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        """Whether there is one."""
        return True

    def device_count(self) -> int:
        """How many there are."""
        return 1

    def current_device(self) -> str:
        """What tensors are moved to."""
        return "cpu"

    def get_device_name(self, device: object = None) -> str:  # noqa: ARG002  # the accelerators' signature
        """What it is called in a table of peak speeds."""
        return "CPU"

    def memory_allocated(self, device: object = None) -> int:  # noqa: ARG002
        """Memory of its own that is in use: it has none."""
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, device: object = None) -> tuple[int, int]:  # noqa: ARG002
        """Free and total memory of its own."""
        return 0, 0

    def set_device(self, device: object) -> None:
        """Choose it."""

    def synchronize(self, device: object = None) -> None:
        """Wait for its queue: it has none."""

    def empty_cache(self) -> None:
        """Return cached memory: it has none."""

    ipc_collect = reset_peak_memory_stats = empty_cache


class CpuPlatform(PlatformBase):
    """The CPU as one accelerator, with gloo between processes."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CpuDevice("cpu")

    def is_available(self) -> bool:
        """Whether it can be used."""
        return True

    def current_device(self) -> str:
        """What tensors are moved to."""
        return "cpu"

    def device_count(self) -> int:
        """How many there are."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Choose it."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Wait for its queue: it has none."""

    def manual_seed(self, seed: int) -> None:
        """Seed its random numbers."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        """Tune its allocator: it has none."""

    def empty_cache(self) -> None:
        """Return cached memory: it has none."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: ARG002
        """CUDA's idea of a version."""
        return None, None

    def communication_backend_name(self) -> str:
        """How processes talk."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Name of a variable that veRL copies around."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Generator[None]:  # noqa: ARG002
        """Mark a range for a profiler: it has none."""
        yield

    def profiler_start(self) -> None:
        """Start a profiler: it has none."""

    profiler_stop = profiler_start

    def ray_resource_name(self) -> str:
        """Ray's name for logical devices."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Variables that make Ray leave devices unchanged."""
        return []

    def is_ipc_supported(self) -> bool:
        """Whether memory of the device can be shared between processes."""
        return False

    def cudart(self) -> None:
        """CUDA's runtime."""


@cache
def enter_platform() -> str:
    """Prepare this process for veRL's engines; return the device that they will use.

    Idempotent. Uses CUDA where torch finds it, else the CPU. Below torchrun it waits for the other processes.
    """
    for name, value in _ONE_PROCESS.items():
        os.environ.setdefault(name, value)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        set_platform(CpuPlatform())
    load_engines(device)
    if not torch.distributed.is_initialized():
        _join_group(device)
    return device


def _join_group(device: str) -> None:
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if int(os.environ["WORLD_SIZE"]) > 1:
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group(backend)
        return
    store = torch.distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]  # public in torch's manual
    torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)


@cache
def load_engines(device: str) -> None:
    """Import veRL's engines for a device, and put ours in place of FSDP2's. The platform is set.

    Idempotent: a process may have two workers.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one for each engine whose library is not installed
        from trainer_adapter.verl.packed.engine import register_engine  # noqa: PLC0415  # as veRL's engines below

    register_engine(device, get_platform().vendor_name)
