"""veRL's own vLLM servers: who reaches them, how weights arrive on a CPU, and how dead ones are replaced."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.cluster.servers.access import RequireKey as RequireKey
    from trainer_adapter.cluster.servers.access import access_key as access_key
    from trainer_adapter.cluster.servers.server import ClusterReplica as ClusterReplica
    from trainer_adapter.cluster.servers.server import HeldWeights as HeldWeights
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.cluster.servers.access": ("RequireKey", "access_key"),
            "trainer_adapter.cluster.servers.server": ("ClusterReplica", "HeldWeights"),
        },
    )
