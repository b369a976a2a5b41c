"""Machines of a Ray cluster that a user started: what a run needs, whether they have it, and which have died."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.cluster.nodes.joined import JoinedCluster as JoinedCluster
    from trainer_adapter.cluster.nodes.machine import list_engine_processes as list_engine_processes
    from trainer_adapter.cluster.nodes.needs import find_address as find_address
    from trainer_adapter.cluster.nodes.needs import plan_needs as plan_needs
    from trainer_adapter.cluster.nodes.needs import write_needs as write_needs
    from trainer_adapter.cluster.nodes.watch import ServerEnd as ServerEnd
    from trainer_adapter.cluster.nodes.watch import ServerProcesses as ServerProcesses
    from trainer_adapter.cluster.nodes.watch import explain_end as explain_end
    from trainer_adapter.cluster.nodes.watch import kill_server as kill_server
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.cluster.nodes.joined": ("JoinedCluster",),
            "trainer_adapter.cluster.nodes.machine": ("list_engine_processes",),
            "trainer_adapter.cluster.nodes.needs": ("find_address", "plan_needs", "write_needs"),
            "trainer_adapter.cluster.nodes.watch": ("ServerEnd", "ServerProcesses", "explain_end", "kill_server"),
        },
    )
