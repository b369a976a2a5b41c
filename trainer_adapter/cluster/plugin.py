"""Plug-in that each process of veRL imports before anything else (``VERL_USE_EXTERNAL_MODULES``).

It must stay light: processes without a model import it, too. The CPU becomes a platform, and veRL's vLLM server one
that only its own machine reaches.
"""

import os
import sys

import ray
from verl.plugin.platform.platform_manager import PlatformRegistry

from trainer_adapter.cluster.nodes.machine import find_interface
from trainer_adapter.cluster.overrides import CODE, is_reached_from_other_machines
from trainer_adapter.verl import CpuPlatform

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false, reportUnknownArgumentType=false
# veRL and Ray carry few types.

REPLICA = "vllm"
"""veRL's name of its vLLM servers, which ours take."""


def use_own_servers() -> None:
    """Let our servers take the place of veRL's vLLM servers, in this process, which launches them."""
    from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry  # noqa: PLC0415  # heavy

    def load() -> type[RolloutReplica]:
        from trainer_adapter.cluster.server import ClusterReplica  # noqa: PLC0415  # imports vLLM

        return ClusterReplica

    RolloutReplicaRegistry.register(REPLICA, load)


is_joined = is_reached_from_other_machines() and ray.is_initialized()
if interface := find_interface(ray.util.get_node_ip_address()) if is_joined else None:
    # gloo would listen at the address of the host's name, which is often loopback; other machines know that of Ray
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
if CODE in os.environ:  # behind everything else, so that it hides nothing
    sys.path.append(os.environ[CODE])
if os.environ.get("VERL_PLATFORM") == "cpu":
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
