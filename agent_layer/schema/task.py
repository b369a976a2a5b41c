"""Tasks: what an agent is asked, how it is graded, and what it may use."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import JsonObject, Record, current_version
from agent_layer.schema.sandbox import SandboxSpec

Split: TypeAlias = Literal["train", "eval"]

ShortGroupPolicy: TypeAlias = Literal["deliver", "refill", "drop"]
"""What happens to a group with too few usable rollouts: it is delivered; it is filled up with new rollouts, three times
at most, and then delivered; or nothing of it is delivered."""


History: TypeAlias = Literal["full", "drop_observations", "summarise"]
"""What an environment's loop does when the messages outgrow ``context_tokens``.

full               end the attempt as truncated
drop_observations  replace the oldest observations by a note that they were dropped
summarise          let the policy summarise the oldest turns; the summary is a step of its own and is trained
"""

NOT_SAMPLING: Final = frozenset(
    {"messages", "tools", "model", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "user"}
    | {"metadata", "store"}
)
"""Request fields that the agent or the gateway decides. All other fields are sampling, and a task may set them."""


class RewardSpec(Record, frozen=True, kw_only=True):
    """How one named reward of scope rollout enters the rollout's reward."""

    weight: float = 1.0
    required: bool = True
    """A required reward that is absent or not ok makes the rollout's reward null."""


WallFault: TypeAlias = Literal["auto", "policy", "user"]
"""Whose fault it is that an attempt uses up its time: found from what took it, the policy's, the agent's."""


class Limits(Record, frozen=True, kw_only=True):
    """Limits of one attempt; None: no limit."""

    wall_seconds: float | None = None
    wall_fault: WallFault = "auto"
    """Whose fault the end of ``wall_seconds`` or ``idle_seconds`` is."""
    turns: int | None = None
    """Model calls of the policy; calls of role ``aux`` spend none."""
    tokens: int | None = None
    """Tokens that the policy sampled, summed over its calls; those of calls of role ``aux`` do not count."""
    idle_seconds: float | None = None
    """Longest time without a recorded event."""
    score_seconds: float | None = None
    """Time limit of its scorer; None: the setting of this name."""
    sandbox_seconds: float | None = None
    """Lifetime of its sandbox. Submission checks that the limits of agent and scorer fit into it."""
    context_tokens: int | None = None
    """Prompt and answer of one call together; a call that would need more ends the attempt as truncated, unless
    ``history`` makes room."""
    observation_tokens: int | None = None
    """Longest observation in a prompt; the middle of a longer one is cut out."""


class SideCall(Record, frozen=True, kw_only=True):
    """Pattern of a model call that is no part of an agent's task, such as the title of a session: it is ``aux``.

    Texts are patterns with ``*`` and ``?``, in any case; all that are given must fit.
    """

    name: str = "declared"
    """Name in the finding of a call that fits."""
    system: str | None = None
    """Fits the texts of system and developer messages."""
    prompt: str | None = None
    """Fits the user's last message."""
    model: str | None = None
    """Fits the name of the model that the agent asks for."""
    agent: str | None = None
    """Fits the name of the agent that calls."""
    has_tools: bool | None = None
    """Whether the call offers tools."""


SIDE_CALL_KINDS: Final = ("commits", "titles")
"""Kinds of side calls whose patterns the gateway knows."""


def check_side_calls(declared: Iterable[SideCall | str], subject: str) -> None:
    """Check declared side calls.

    Raises: BadInputError: a kind is not known, or a pattern would fit every call.
    """
    for one in declared:
        if isinstance(one, str) and one not in SIDE_CALL_KINDS:
            raise BadInputError(
                f"{subject}: expected kinds of side calls among {', '.join(SIDE_CALL_KINDS)}, found {one!r}; correct"
                ' it, or give a pattern such as {"system": "*title*"}'
            )
        if isinstance(one, SideCall) and (one.unknown or one == SideCall(name=one.name)):
            raise BadInputError(
                f"{subject}: expected a side call by system, prompt, model, agent or has_tools, found"
                f" {', '.join(map(str, one.unknown)) or 'none of them'}; correct it"
            )


class TaskView(Record, frozen=True, kw_only=True):
    """The part of a task that its agent sees; never the grading."""

    id: str
    task_type: str
    input: object = None
    seed: int | None = None


class Task(Record, frozen=True, kw_only=True, tag="task"):
    """One task, as a user submits it."""

    id: str
    run: str
    schema_version: int = msgspec.field(default_factory=current_version)
    split: Split = "train"
    task_type: str = "default"
    input: object = None
    """What the agent sees; any JSON value."""
    grading: object = None
    """What only the scorer sees; any JSON value."""
    env: str | None = None
    agent: str | None = None
    scorer: str | None = None
    """'agent' (rewards that the agent reports), 'module:function' or a registered name; None: the worker's default."""
    rewards: dict[str, RewardSpec] = {}
    """Declared rewards by name. Empty: every reward of scope rollout counts with weight 1."""
    group_size: int = 1
    """Usable rollouts that make its group whole."""
    launch: int | None = None
    """Rollouts to launch; the slowest are cancelled once enough are usable. None: ``group_size``."""
    partial: ShortGroupPolicy = "deliver"
    sampling: JsonObject = {}
    """Overrides sampling parameters of the agent, such as temperature, but for calls of role ``aux``."""
    side_calls: list[SideCall | str] = []
    """Calls of the agent that the policy does not learn from: patterns, or kinds that are known, such as ``titles``."""
    limits: Limits = Limits()
    priority: int = 0
    """Higher goes first."""
    needs: list[str] = []
    """Capabilities that a worker must have."""
    from_policy: int | None = None
    """Smallest policy version by which it may begin, so that it is not too stale when it is trained; None: any. The
    version that the trainer reports as served counts, else the newest registered one. Within one run and priority,
    tasks of an older version go first, because they are trained first."""
    expected_seconds: float | None = None
    """Expected duration of an attempt. Among tasks of the same version, long ones begin first. None: estimated from
    earlier attempts."""
    seed: int | None = None
    sampling_seed: int | None = None
    """Each of its rollouts, and each of their calls, gets a sampling seed of its own from this; None: none. A ``seed``
    in ``sampling`` would be the same for all."""
    labels: dict[str, str] = {}
    sandbox: SandboxSpec | None = None
    """Sandbox that each attempt gets; None: none, unless its environment declares one."""
    files: dict[str, str] = {}
    """Texts of the files that the sandbox has when the agent begins, by path; a relative one is below its workdir."""
    artifacts: list[str] = []
    """Files and folders below the sandbox's work directory that are taken when the agent has ended. Scorers see these,
    and nothing else of the sandbox. Where its image is a root directory, absolute paths too; ``/`` is all changes."""
    history: History = "full"
    calls_optional: bool = False
    """Whether a rollout of split train is usable without any call to the policy."""

    def view(self) -> TaskView:
        """Return the part that the agent may see."""
        return TaskView(id=self.id, task_type=self.task_type, input=self.input, seed=self.seed)


def hash_input(task: Task) -> str:
    """Return a hash of type, environment, input, files and seed of the task. The order of fields does not matter.

    Its id, its grading and its limits do not count.

    Raises: BadInputError: it is nested too deeply to be stored.
    """
    identity = {"task_type": task.task_type, "env": task.env, "input": task.input, "seed": task.seed}
    if task.files:
        identity["files"] = task.files
    try:
        return content_hash(msgspec.json.encode(identity, order="deterministic"))
    except RecursionError as error:
        raise explain_depth(task) from error


def explain_depth(task: Task) -> BadInputError:
    """Return the error of a task that no encoder takes."""
    return BadInputError(
        f"task {task.id!r}: expected an input of at most some hundred levels of lists and objects, found more, which no"
        " encoder takes; write it with fewer"
    )
