"""The phases of an attempt, a record each; ``attempt.py`` says which one follows which."""

from dataclasses import dataclass
from typing import TypeAlias

from agent_layer.dispatcher import LeaseEnding
from agent_layer.schema import ClosedRollout, PhaseTimes, Reward
from agent_layer.schema.sandbox import SandboxUsage
from envs.failures import Ending
from envs.hosts import AgentRun
from envs.progress import Progress
from tracer.core import Rollout


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How the agent's run ended; later phases refine it."""

    ending: Ending
    lease_ending: LeaseEnding
    """How the lease ends unless the attempt counts."""
    result: object = None
    """What the agent returned."""
    times: PhaseTimes
    findings: tuple[str, ...] = ()
    """What was noticed of the attempt as a whole."""
    artifacts: bytes | None = None
    """Archive of the declared files that the agent left; None: none were declared."""
    sandbox: SandboxUsage | None = None
    """What its boxes have used; None: it had none, or it is not known."""


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """Claimed; the gateway has not opened the attempt, and nothing is recorded."""

    times: PhaseTimes


@dataclass(frozen=True, kw_only=True)
class Running:
    """The agent runs."""

    rollout: Rollout
    agent_run: AgentRun
    progress: Progress
    times: PhaseTimes


@dataclass(frozen=True, kw_only=True)
class HandingOver:
    """The agent has ended here, and another holder may go on with the attempt: no end is recorded."""

    rollout: Rollout | None
    """None: the gateway did not open it."""
    end: RunEnd


@dataclass(frozen=True, kw_only=True)
class Closing:
    """The agent has ended; the gateway may still accept calls."""

    rollout: Rollout | None
    """None: the gateway did not open it, so there is nothing to close, and no start that needs an end."""
    end: RunEnd


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Closed at the gateway, and ended in a way that counts."""

    rollout: Rollout
    closed: ClosedRollout
    """What the gateway counted."""
    end: RunEnd


@dataclass(frozen=True, kw_only=True)
class Sealing:
    """Scored; its end is to be recorded and stored."""

    rollout: Rollout
    closed: ClosedRollout
    rewards: tuple[Reward, ...]
    end: RunEnd


@dataclass(frozen=True, kw_only=True)
class Done:
    """Nothing is left but the report."""

    end: RunEnd
    is_usable: bool = True
    """Whether an attempt that counts has a reward."""
    is_handed_over: bool = False
    """Whether another holder may go on with the attempt, so that its checkpoint stays."""


Phase: TypeAlias = Preparing | Running | HandingOver | Closing | Scoring | Sealing | Done
