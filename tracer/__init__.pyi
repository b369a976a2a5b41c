# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from . import testing as testing
from .core import Rollout as Rollout, agent as agent, current as current, reward as reward, state as state, step as step
from .core import tool as tool
from .credentials import clear_secrets as clear_secrets
from .integrations import instrument as instrument
from .propagation import enter_environment as enter_environment, extract as extract, inject as inject
from .rollouts import enter_rollout as enter_rollout, rollout as rollout
from .session import Session as Session, flush as flush, init as init
__all__ = [
    "Rollout", "agent", "current", "enter_rollout", "extract", "flush", "init", "inject", "instrument", "reward",
    "rollout", "state", "step", "testing", "tool",
]
