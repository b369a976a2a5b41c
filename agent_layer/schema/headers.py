"""This file holds the names of the HTTP headers by which a request says whose it is, in the letters that we compare."""

from typing import Final

__all__ = ["AGENT_HEADER", "CALL_HEADER", "ROLE_HEADER", "ROLLOUT_HEADER", "RUN_HEADER"]

CALL_HEADER: Final = "x-agent-layer-call"
"""Call id, minted by the outermost layer that saw the call; the gateway answers with it too."""
ROLLOUT_HEADER: Final = "x-agent-layer-rollout"
"""Trajectory id."""
RUN_HEADER: Final = "x-agent-layer-run"
AGENT_HEADER: Final = "x-agent-layer-agent"
"""Name of the agent that speaks."""
ROLE_HEADER: Final = "x-agent-layer-role"
"""``policy`` or ``aux``."""
