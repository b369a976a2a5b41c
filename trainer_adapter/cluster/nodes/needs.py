"""What a run needs of a Ray cluster, and whether free machines have it. Nothing here needs Ray."""

from collections.abc import Iterator, Sequence
from math import floor
from typing import NamedTuple

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import format_count
from agent_layer.settings import Settings
from trainer_adapter.cluster.overrides import choose_mode
from trainer_adapter.config import ClusterConfig, TrainConfig

_TRAINER_CPUS, _ENGINE_CPUS = 3, 2
"""CPUs that veRL reserves beside each GPU of the trained model, and of a separate engine."""
_OTHER_CPUS = 2
"""CPUs for veRL's balancer and its rewards; our loop and the rows reserve none."""
_MAX_NAMED = 8


class GpuPool(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that must be on one machine."""

    num_gpus: int
    cpus_per_gpu: int
    """CPUs that Ray reserves beside each."""


class ClusterNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a run takes of a Ray cluster."""

    trainer: list[GpuPool]
    """One for each machine of the trained model."""
    engines: list[GpuPool]
    """One for each separate engine; empty in the collocated modes."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the run."""
        return sum(pool.num_gpus for pool in (*self.trainer, *self.engines))


class FreeMachine(NamedTuple):
    """What a machine of a cluster has to give."""

    address: str
    num_gpus: float
    num_cpus: float


def find_address(config: TrainConfig, settings: Settings) -> str | None:
    """Return the address of the Ray cluster to join; None: Ray starts on this machine, for this run.

    Raises: BadInputError: the run is on several machines, and there is no address.
    """
    cluster = config.cluster or ClusterConfig()
    address = cluster.address or settings.ray_address
    if address is None and cluster.nodes > 1:
        raise BadInputError(
            f"cluster.nodes {cluster.nodes}: expected the address of a Ray cluster of that many machines, found none;"
            " run 'ray start --head --port=6379' on this machine and 'ray start --address=HOST:6379' on each other,"
            " then set cluster.address (or RAY_ADDRESS) to HOST:6379"
        )
    return address


def plan_needs(config: TrainConfig) -> ClusterNeeds:
    """Return what a run takes of a cluster."""
    cluster = config.cluster or ClusterConfig()
    trainer = GpuPool(num_gpus=cluster.gpus_per_node, cpus_per_gpu=_TRAINER_CPUS)
    engine = GpuPool(num_gpus=cluster.tensor_parallel, cpus_per_gpu=_ENGINE_CPUS)
    num_engines = cluster.engine_gpus // cluster.tensor_parallel if choose_mode(config) == "separate_async" else 0
    return ClusterNeeds(trainer=[trainer] * cluster.nodes, engines=[engine] * num_engines)


def write_needs(needs: ClusterNeeds, address: str) -> Iterator[str]:
    """Yield lines about what a run takes of the cluster at an address."""
    yield f"Ray cluster {address}: {format_count(needs.num_gpus, 'GPU')} free, looked at when it starts"
    for pools, owner in ((needs.trainer, "for the trained model"), (needs.engines, "for one engine")):
        if pools:
            yield f"  {len(pools)} x {_pool(pools[0])} on one machine, {owner}"
    yield f"  {_OTHER_CPUS} CPUs on any machine, for calls and rewards"


def find_shortage(needs: ClusterNeeds, machines: Sequence[FreeMachine]) -> str | None:
    """Return what the machines lack, as a sentence; None: the run fits.

    The largest pools are placed first, each on the machine where it leaves least.
    """
    gpus = {one.address: one.num_gpus for one in machines}
    cpus = {one.address: one.num_cpus for one in machines}
    pools = sorted((*needs.trainer, *needs.engines), key=lambda pool: pool.num_gpus, reverse=True)
    for number, pool in enumerate(pools):
        wanted = pool.num_gpus * pool.cpus_per_gpu
        fitting = [name for name in gpus if gpus[name] >= pool.num_gpus and cpus[name] >= wanted]
        if not fitting:
            return (
                f"Ray cluster: expected {format_count(len(pools), 'place')} of {_pool(pool)} on one machine each, found"
                f" {number} free on {_describe(machines)}; start Ray on more machines ('ray start --address=…'), wait"
                " for other jobs, or lower cluster.nodes, gpus_per_node or engine_gpus"
            )
        place = min(fitting, key=lambda name: gpus[name])
        gpus[place] -= pool.num_gpus
        cpus[place] -= wanted
    if (left := sum(map(floor, cpus.values()))) < _OTHER_CPUS:  # each is of one machine
        return (
            f"Ray cluster: expected {_OTHER_CPUS} free CPUs beside those of GPUs, found {left} on"
            f" {_describe(machines)}; give 'ray start' more with --num-cpus"
        )
    return None


def _describe(machines: Sequence[FreeMachine]) -> str:
    named = [f"{one.address} ({one.num_gpus:g} GPUs, {one.num_cpus:g} CPUs)" for one in machines[:_MAX_NAMED]]
    more = [f"{len(machines) - _MAX_NAMED} more"] if len(machines) > _MAX_NAMED else []
    return f"{format_count(len(machines), 'machine')}: {', '.join([*named, *more])}" if machines else "no machine"


def _pool(pool: GpuPool) -> str:
    return f"{format_count(pool.num_gpus, 'GPU')} and {pool.num_gpus * pool.cpus_per_gpu} CPUs"
