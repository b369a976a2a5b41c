"""What a scorer sees, what it answers, and what a verdict means."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from agent_layer.schema import JsonObject, Task, Trajectory
from agent_layer.schema.sandbox import Sandbox, SandboxSpec, Snapshot

Judge: TypeAlias = Literal["own", "shared"]
"""Whether what judges shares an interpreter with what is judged, which can then force its verdict."""
VerdictStatus: TypeAlias = Literal["ok", "tampering", "verifier_error", "infra_error", "timeout"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a scorer found."""

    scores: dict[str, float] = {}
    """Scores by name of the reward."""
    step_scores: dict[int, dict[str, float]] = {}
    """Scores of single steps, by index of the step; apart from those of the rollout."""
    status: VerdictStatus = "ok"
    """``tampering``: every score is 0 and counts. With any status but these two, every score is null."""
    tampering: list[str] = []
    """What the judged code tried; not empty means tampering."""
    refused: dict[str, str] = {}
    """Why a score is none, by name, for scores that are no finite numbers; read from the others."""
    evidence: JsonObject = {}
    """Evidence for people: outputs, failed checks."""
    judge: Judge = "own"


class ScoringContext(Protocol):
    """What only a scorer sees. The agent has ended, and its sandbox is closed."""

    task: Task
    """Task with its grading."""
    trajectory: Trajectory
    """Trajectory as stored."""
    result: object
    """What the agent returned; any JSON value."""
    artifacts: Snapshot | None
    """Files that the agent left, as declared; None: the task declares none. Restore them in boxes only."""

    async def sandbox(self, spec: SandboxSpec | None = None) -> Sandbox:
        """Return a fresh box, which the agent never touched; it is closed when the scorer ends.

        Args:
            spec: None: that of the agent's box.
        """
        ...

    async def ask(self, messages: Sequence[JsonObject], **sampling: object) -> str:
        """Return a judge's answer: a model call through the gateway with role ``aux``, which is never trained."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """Judges one attempt. A class may declare a ``version``; raise it when its answers change.

    One whose verdicts are of a ``Judge`` that is ``shared`` says so by an attribute ``judge``, and in each verdict.
    """

    async def score(self, context: ScoringContext) -> Verdict | float | dict[str, float] | None:
        """Return the verdict; a number is the score of the only reward, None: it has no judgement."""
        ...


Judgement: TypeAlias = Verdict | float | dict[str, float] | None
"""What a scorer answers about one attempt."""


@runtime_checkable
class GroupScorer(Protocol):
    """Judges all attempts of a group against each other.

    A group is whole only when its attempts are judged, so no worker can run it: ``agent-layer rescore`` does, later.
    """

    async def score_group(self, contexts: Sequence[ScoringContext]) -> Sequence[Judgement]:
        """Return a judgement for each attempt, in order."""
        ...
