"""Requests and answers of the gateway's rollout API: open, renew, mark, pause, reward, close and end; and its headers.

The server refuses fields that it does not know, because the client relies on them. A client ignores unknown fields.
"""

from typing import Annotated, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from agent_layer.schema.ids import make_trajectory_id
from agent_layer.schema.record import JsonObject
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.task import Limits, RewardSpec, SideCall, Split, Task, hash_input
from agent_layer.schema.trace import TraceContext

B = TypeVar("B", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)

EndStatus: TypeAlias = Literal["completed", "truncated", "failed", "cancelled", "lost", "dead"]
"""Statuses with which a rollout can be ended."""
MAX_LEASE_SECONDS: Final = 86_400
"""Longest lease, a day: a worker that died is noticed by then."""
LeaseSeconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=MAX_LEASE_SECONDS)]
KEY_PREFIX: Final = "alrk_"
"""Prefix of the keys of rollouts, by which they are found and removed from records."""


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parent of bodies that a client sends. None: the gateway chooses."""


class Resumption(_Request, frozen=True, kw_only=True):
    """Point from which an attempt resumes: the result of a mark, stored in a checkpoint beside the agent's state."""

    calls: int
    """Number of calls to keep: those that had ended at the mark. Later calls are abandoned."""
    seconds: float = 0.0
    """Time that the attempt had used."""
    worker: str | None = None
    """Worker that resumes it."""


class AccessRequest(_Request, frozen=True, kw_only=True):
    """Body of POST /access."""


class GatewayFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a gateway and the clients that hold the operator's key must agree on."""

    namespace: str
    """Where its records become trajectories."""
    objects: str | None = None
    """Bucket and prefix of its objects; None: a directory, whose path says nothing on another machine."""


class OpenRequest(_Request, frozen=True, kw_only=True):
    """Body of POST /rollouts."""

    task_id: str
    task_type: str = "default"
    run: str | None = None
    split: Split | None = None
    rollout_id: str | None = None
    attempt: int | None = None
    group_id: str | None = None
    agent: str | None = None
    labels: dict[str, str] = {}
    limits: Limits | None = None
    sampling: JsonObject = {}
    """Overrides sampling parameters of the agent."""
    sampling_seed: int | None = None
    """Each call gets a seed of its own from this, unless ``sampling`` has one; None: none."""
    side_calls: list[SideCall | str] = []
    """See ``Task``."""
    rewards: dict[str, RewardSpec] = {}
    scorer: str | None = None
    """Name of the task's scorer, which alone rewards the rollout: its key may not. None: its agent reports rewards."""
    owner: Literal["worker"] | None = None
    """'worker' when the opener records beginning and end itself."""
    input_hash: str | None = None
    """See ``hash_input``; for openers that know the task."""
    env: str | None = None
    """Name of the environment."""
    env_version: str | None = None
    lease_token: int | None = None
    """The worker's lease. A later one is larger: it fences off what was opened under an earlier one. None: no lease."""
    lease_seconds: LeaseSeconds | None = None
    """Seconds until the key expires unless it is renewed; None: it is valid until the rollout is closed."""
    trace: TraceContext | None = None
    """Trace to which the attempt belongs."""
    calls_optional: bool = False
    """See ``Task``; for rollouts that no worker ends."""
    resume: Resumption | None = None
    """Resume this attempt, which the gateway must still know; None: open it. Sampling and limits do not change. The
    gateway refuses the earlier holder from then on, and aborts its running calls."""


class OpenedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """Address of the model for the attempt's agent, and the attempt's own key."""

    rollout_id: str
    attempt: int
    trajectory_id: str
    base_url: str
    api_key: str
    model: str
    abandoned: list[str] = []
    """Ids of the calls that a resume abandons: they are never trained."""


class HolderRequest(_Request, frozen=True, kw_only=True):
    """Body of POST /rollouts/{rollout}/mark and /pause."""

    attempt: int | None = None
    """None: the newest."""
    key: str | None = None
    """Key of the attempt that this holder received: a holder that lost the attempt is refused. None: not checked, for
    requests of the operator."""


class MarkedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an attempt; a checkpoint stores it for the resume."""

    trajectory_id: str
    calls: int
    """Calls that have ended so far, abandoned ones included."""
    seconds: float
    """Time that it has used, without pauses."""


class RenewRequest(_Request, frozen=True, kw_only=True):
    """Body of POST /rollouts/renew: the keys of these attempts are valid for ``lease_seconds`` from now."""

    trajectory_ids: list[str]
    lease_seconds: LeaseSeconds


class RenewedRollouts(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a renewal."""

    unknown: list[str]
    """Attempts that are not open here: closed, expired, or opened at a gateway that is gone."""
    quiet_seconds: dict[str, float] = {}
    """Seconds since the last call of each open attempt began or ended, or since the attempt was opened."""
    calling: list[str] = []
    """Open attempts that wait for an answer."""
    waited_seconds: dict[str, float] = {}
    """Time in which at least one question of each open attempt waited for its answer, since its holder opened it."""

    def __add__(self, other: "RenewedRollouts") -> "RenewedRollouts":
        """Combine the results of two gateways."""
        return RenewedRollouts(
            unknown=self.unknown + other.unknown,
            quiet_seconds=self.quiet_seconds | other.quiet_seconds,
            calling=self.calling + other.calling,
            waited_seconds=self.waited_seconds | other.waited_seconds,
        )


class RewardRequest(_Request, frozen=True, kw_only=True):
    """Body of POST /r/{trajectory}/reward."""

    score: float | bool | None = None
    reward: float | bool | None = None
    """Alias of score."""
    name: str = "reward"
    step: int | None = None
    """Index of the step that is judged."""
    agent: str | None = None
    """Name of the agent that is judged, when no step is given."""


class CloseRequest(_Request, frozen=True, kw_only=True):
    """Body of POST /rollouts/{rollout}/close."""

    attempt: int | None = None
    """None: the newest."""
    key: str | None = None
    """See ``HolderRequest``."""
    abort: bool = False
    """Abort running calls at once, down to the engine, instead of waiting for them."""


PolicyFault: TypeAlias = Literal["context_full", "missed_form"]
"""``context_full``: a call did not fit into the model's context. ``missed_form``: an answer lacks the form that its
agent had asked for, and that no grammar forced, because a trainer could not reproduce it."""


class ClosedRollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Calls that the gateway saw begin and end; equal when none is missing."""

    trajectory_id: str
    started: int
    ended: int
    untokened: list[str] = []
    """Calls of the policy that were answered without token ids or log-probabilities."""
    policy_calls: int | None = None
    """Calls that the policy answered or in which it was cut off, without abandoned ones; None: not known."""
    findings: list[str] = []
    """``refused: CODE`` for each reason for which the gateway refused requests of the agent."""
    policy_fault: PolicyFault | None = None
    """What the last call of the policy lacked: a failure of the agent that follows is the policy's."""


class EndRequest(_Request, frozen=True, kw_only=True):
    """Body of POST /rollouts/{rollout}/end, sent by its opener."""

    attempt: int | None = None
    """None: the newest."""
    reward: float | bool | None = None
    status: EndStatus = "completed"
    """``failed`` counts as ``truncated`` where the last call of the policy did not fit into the model's context."""
    error: str | None = None
    """Why it failed; the first 2,000 characters are kept."""
    traceback: str | None = None
    """Where the agent raised the error; the first 8,000 characters are kept."""


class EndedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the attempt is accepted, and its reward."""

    trajectory_id: str
    accepted: bool
    reward: float | None = None
    started: int
    ended: int
    error: str | None = None
    """Why it has no reward although it is accepted; None: it has one, or its opener gave none."""


class RecordedReward(msgspec.Struct, frozen=True, kw_only=True):
    """Id under which a reward is recorded."""

    reward_id: str


class Endpoint(msgspec.Struct, Generic[B, A], frozen=True, kw_only=True):
    """One address of the gateway, shared by its server and its clients: a record in, a record out."""

    path: str
    """Path with names in braces."""
    request: type[B]
    answer: type[A]
    method: Literal["POST"] = "POST"

    def fill(self, **names: str) -> str:
        """Return the path of a request."""
        return self.path.format(**{name: quote(value) for name, value in names.items()})


ACCESS: Final = Endpoint(path="/access", request=AccessRequest, answer=GatewayFacts)
OPEN_ROLLOUT: Final = Endpoint(path="/rollouts", request=OpenRequest, answer=OpenedRollout)
RENEW_ROLLOUTS: Final = Endpoint(path="/rollouts/renew", request=RenewRequest, answer=RenewedRollouts)
MARK_ROLLOUT: Final = Endpoint(path="/rollouts/{rollout_id}/mark", request=HolderRequest, answer=MarkedRollout)
PAUSE_ROLLOUT: Final = Endpoint(path="/rollouts/{rollout_id}/pause", request=HolderRequest, answer=MarkedRollout)
CLOSE_ROLLOUT: Final = Endpoint(path="/rollouts/{rollout_id}/close", request=CloseRequest, answer=ClosedRollout)
END_ROLLOUT: Final = Endpoint(path="/rollouts/{rollout_id}/end", request=EndRequest, answer=EndedRollout)
REWARD_ROLLOUT: Final = Endpoint(path="/reward", request=RewardRequest, answer=RecordedReward)
"""Below the address of the rollout itself, ``/r/{trajectory_id}``, and with its key."""


def make_attempt_started(
    request: OpenRequest,
    *,
    rollout_id: str,
    run: str,
    at: float,
    worker: str | None = None,
    task: Task | None = None,
) -> AttemptStarted:
    """Return the first record of the requested attempt.

    Args:
        request: body of the request.
        rollout_id: for requests that name no rollout.
        run: for requests that name no run.
        at: now, in seconds since the epoch.
        worker: worker that runs it.
        task: the whole task, if known.
    """
    rollout_id, attempt = request.rollout_id or rollout_id, request.attempt or 0
    return AttemptStarted(
        trajectory_id=make_trajectory_id(rollout_id, attempt),
        rollout_id=rollout_id,
        attempt=attempt,
        run=request.run or run,
        task_id=request.task_id,
        started_at=at,
        task_type=request.task_type,
        split=request.split or "train",
        group_id=request.group_id,
        agent=request.agent,
        worker=worker,
        rewards=request.rewards,
        labels=request.labels,
        task=task,
        input_hash=request.input_hash if task is None else hash_input(task),
        env=request.env or (task.env if task else None),
        env_version=request.env_version,
        trace=request.trace,
    )


CALL_HEADER: Final = "x-agent-layer-call"
"""Call id, minted by the outermost layer that saw the call; the gateway answers with it too."""
ROLLOUT_HEADER: Final = "x-agent-layer-rollout"
"""Trajectory id."""
RUN_HEADER: Final = "x-agent-layer-run"
AGENT_HEADER: Final = "x-agent-layer-agent"
"""Name of the agent that calls."""
ROLE_HEADER: Final = "x-agent-layer-role"
"""``policy`` or ``aux``."""
