"""Plug-in that each process of veRL imports before anything else (``VERL_USE_EXTERNAL_MODULES``).

It must stay light: processes without a model import it, too. The CPU becomes a platform, and veRL's vLLM server one
that only its own machine reaches.
"""

import os
import sys

from verl.plugin.platform.platform_manager import PlatformRegistry

from trainer_adapter.cluster.overrides import CODE
from trainer_adapter.verl import CpuPlatform

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false
# veRL carries no types.

REPLICA = "vllm"
"""veRL's name of its vLLM servers, which ours take."""


def use_own_servers() -> None:
    """Let our servers take the place of veRL's vLLM servers, in this process, which launches them."""
    from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry  # noqa: PLC0415  # heavy

    def load() -> type[RolloutReplica]:
        from trainer_adapter.cluster.server import ClusterReplica  # noqa: PLC0415  # imports vLLM

        return ClusterReplica

    RolloutReplicaRegistry.register(REPLICA, load)


if CODE in os.environ:  # behind everything else, so that it hides nothing
    sys.path.append(os.environ[CODE])
if os.environ.get("VERL_PLATFORM") == "cpu":
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
