"""Which tasks are trained, and with how many rollouts: curricula, filters and ramps by name. Pure.

A user chooses them in a configuration, as in ``{name: success_between, low: 0.1}``. A part is a record with its
options, tagged with its name, and one method; its registration is its place in one of the unions. Another name is a
part of users: a class that takes its options and has that method (``docs/how-to/own-parts.md``). Parts are pure, so
that a run that was stopped goes on as if it had not.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import sqrt
from statistics import fmean
from typing import Annotated, ClassVar, TypeAlias, cast

import msgspec
from msgspec import Meta

from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from envs import PlugIns
from trainer_adapter.algorithms import find_part

MAX_SUCCESSES = 10_000


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """Base of all parts: a misspelt option is an error."""


class SuccessShare(Part, frozen=True, tag="success_share"):
    """Share rollouts in proportion to (1 - success rate) + floor.

    A task that always succeeds, or never does, teaches nothing, because its rewards are equal. Tasks that still fail
    get more rollouts, so that one success among many attempts becomes likely.
    """

    floor: Annotated[float, Meta(gt=0)] = 0.3
    """Weight of a task that always succeeds; the larger, the more even the shares."""
    minimum: Annotated[int, Meta(ge=2)] = 2
    """Fewest rollouts of a task."""
    memory: Annotated[float, Meta(ge=0, le=1)] = 0.7
    """Weight of a task's old success rate when new rollouts arrive."""

    def share(self, num_rollouts: int, rates: Sequence[float]) -> list[int]:
        """Return the rollouts of each task, [num_tasks]."""
        return allot_rollouts(num_rollouts, [1 - rate + self.floor for rate in rates], self.minimum)


class VarianceShare(Part, frozen=True, tag="variance_share"):
    """Share rollouts in proportion to the standard deviation of a task's reward of 0 or 1, plus a floor.

    That deviation is sqrt(p (1 - p)) at success rate p. Shares in proportion to it give the least variance of a sum of
    means over strata (Neyman 1934).
    """

    floor: Annotated[float, Meta(gt=0)] = 0.1
    """Weight of a task that always succeeds, or never does."""
    minimum: Annotated[int, Meta(ge=2)] = 2
    """Fewest rollouts of a task."""
    memory: Annotated[float, Meta(ge=0, le=1)] = 0.7
    """Weight of a task's old success rate when new rollouts arrive."""

    def share(self, num_rollouts: int, rates: Sequence[float]) -> list[int]:
        """Return the rollouts of each task, [num_tasks]."""
        return allot_rollouts(num_rollouts, [sqrt(rate * (1 - rate)) + self.floor for rate in rates], self.minimum)


class UserCurriculum(Part, frozen=True, dict=True, tag="user_curriculum"):
    """A curriculum of users."""

    of: str
    """Its name: ``module:attribute``, or of the entry point ``agent_layer.curricula``."""
    options: dict[str, object] = {}

    @cached_property
    def part(self) -> object:
        """The curriculum. Raises: BadInputError: there is none."""
        return _make_part(CURRICULA, self.of, self.options, "share")

    @property
    def memory(self) -> float:
        """Weight of a task's old success rate when new rollouts arrive."""
        return float(getattr(self.part, "memory", 0.7))

    def share(self, num_rollouts: int, rates: Sequence[float]) -> list[int]:
        """Return the rollouts of each task, [num_tasks].

        Raises: BadInputError: the curriculum returns no whole number of at least 2 for each task.
        """
        shares = [*cast("Curriculum", self.part).share(num_rollouts, list(rates))]
        if len(shares) != len(rates) or not all(type(one) is int and one > 1 for one in shares):
            raise BadInputError(
                f"curriculum {self.of!r}: expected a whole number of at least 2 for each of {len(rates)} tasks, found"
                f" {len(shares)}: {shares[:8]}; a group of one has no baseline"
            )
        return shares


Curriculum: TypeAlias = SuccessShare | VarianceShare | UserCurriculum
"""``share(num_rollouts, rates)`` returns how many rollouts each task of a submission gets.

Args: rates: [num_tasks], recent success rate of each task, 0 to 1.
Returns: [num_tasks].
"""


def allot_rollouts(num_rollouts: int, weights: Sequence[float], minimum: int) -> list[int]:
    """Return each task's share of the rollouts of a submission, in proportion to its weight.

    Args:
        num_rollouts: of the whole submission.
        weights: [num_tasks], above 0.
        minimum: rollouts that every task gets, at least 2 for a baseline.

    Returns:
        [num_tasks], summing to ``num_rollouts`` whenever that allows ``minimum`` for each, else ``minimum`` each.
    """
    if num_rollouts <= minimum * len(weights):
        return [minimum] * len(weights)
    wanted = [num_rollouts * weight / sum(weights) for weight in weights]
    shares = [max(minimum, int(share)) for share in wanted]
    while (missing := num_rollouts - sum(shares)) != 0:
        gaps = [want - share for want, share in zip(wanted, shares, strict=True)]
        if missing > 0:
            shares[gaps.index(max(gaps))] += 1
        else:
            spare = [gap if share > minimum else float("inf") for gap, share in zip(gaps, shares, strict=True)]
            shares[spare.index(min(spare))] -= 1
    return shares


class SuccessBetween(Part, frozen=True, tag="success_between"):
    """Admit tasks whose recent success rate is above ``low`` and below ``high``, and those without one."""

    low: Annotated[float, Meta(ge=0, le=1)] = 0.0
    high: Annotated[float, Meta(ge=0, le=1)] = 1.0
    retry: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of the turns of other tasks in which they are tried all the same, because the policy changes."""

    def __post_init__(self) -> None:
        """Check that a rate can be between the bounds."""
        if not self.low < self.high:
            raise ValueError(f"expected low below high, found {self.low:g} and {self.high:g}")

    def admits(self, task: Task, success: float | None) -> bool:  # noqa: ARG002  # filters have one signature
        """Return whether the task is submitted."""
        return success is None or self.low < success < self.high


class InputSize(Part, frozen=True, tag="input_size"):
    """Admit tasks whose input has at most this many characters; an input that is no text is measured as JSON.

    A token has about four characters of English. The prompt itself is known only to the agent.
    """

    most: Annotated[int, Meta(ge=1)]
    retry: ClassVar[float] = 0.0

    def admits(self, task: Task, success: float | None) -> bool:  # noqa: ARG002  # filters have one signature
        """Return whether the task is submitted."""
        text = task.input if isinstance(task.input, str) else msgspec.json.encode(task.input).decode()
        return len(text) <= self.most


class Labelled(Part, frozen=True, tag="labelled"):
    """Admit tasks whose label ``label`` has one of these values."""

    label: str
    values: Annotated[list[str], Meta(min_length=1)]
    retry: ClassVar[float] = 0.0

    def admits(self, task: Task, success: float | None) -> bool:  # noqa: ARG002  # filters have one signature
        """Return whether the task is submitted."""
        return task.labels.get(self.label) in self.values


class ExcludeTasks(Part, frozen=True, tag="exclude_tasks"):
    """Admit all tasks but these."""

    ids: frozenset[str]
    retry: ClassVar[float] = 0.0

    def admits(self, task: Task, success: float | None) -> bool:  # noqa: ARG002  # filters have one signature
        """Return whether the task is submitted."""
        return task.id not in self.ids


class UserFilter(Part, frozen=True, dict=True, tag="user_filter"):
    """A filter of users."""

    of: str
    """Its name: ``module:attribute``, or of the entry point ``agent_layer.filters``."""
    options: dict[str, object] = {}

    @cached_property
    def part(self) -> object:
        """The filter. Raises: BadInputError: there is none."""
        return _make_part(FILTERS, self.of, self.options, "admits")

    @property
    def retry(self) -> float:
        """Share of the turns of other tasks in which they are tried all the same."""
        return float(getattr(self.part, "retry", 0.0))

    def admits(self, task: Task, success: float | None) -> bool:
        """Return whether the task is submitted."""
        return bool(cast("TaskFilter", self.part).admits(task, success))


TaskFilter: TypeAlias = SuccessBetween | InputSize | Labelled | ExcludeTasks | UserFilter
"""``admits(task, success)`` returns whether a task is submitted when its turn comes.

``success`` is its recent success rate, None where it has none. A task that is not admitted is tried in a share
``retry`` of its turns all the same, because the policy changes.
"""


class SuccessRamp(Part, frozen=True, tag="success_ramp"):
    """Move on when the mean success of the last ``groups`` groups reaches ``above``."""

    above: Annotated[float, Meta(gt=0, le=1)] = 0.8
    groups: Annotated[int, Meta(ge=1, le=10_000)] = 64

    def rises(self, successes: Sequence[float]) -> bool:
        """Return whether the task set moves on to its next level."""
        return len(successes) >= self.groups and fmean(successes[-self.groups :]) >= self.above


class GroupRamp(Part, frozen=True, tag="group_ramp"):
    """Move on when ``groups`` groups were trained at a level, whatever came of them."""

    groups: Annotated[int, Meta(ge=1, le=10_000)]

    def rises(self, successes: Sequence[float]) -> bool:
        """Return whether the task set moves on to its next level."""
        return len(successes) >= self.groups


class UserRamp(Part, frozen=True, dict=True, tag="user_ramp"):
    """A ramp of users."""

    of: str
    """Its name: ``module:attribute``, or of the entry point ``agent_layer.ramps``."""
    options: dict[str, object] = {}

    @cached_property
    def part(self) -> object:
        """The ramp. Raises: BadInputError: there is none."""
        return _make_part(RAMPS, self.of, self.options, "rises")

    def rises(self, successes: Sequence[float]) -> bool:
        """Return whether the task set moves on to its next level."""
        return bool(cast("LevelRamp", self.part).rises(list(successes)))


LevelRamp: TypeAlias = SuccessRamp | GroupRamp | UserRamp
"""``rises(successes)`` returns whether a task set moves on to its next level.

Args: successes: success of the groups that were trained at this level, oldest first, at most ``MAX_SUCCESSES``.
"""


CURRICULA = PlugIns(
    "agent_layer.curricula",
    "rollouts.curriculum",
    {"success_share": SuccessShare, "variance_share": VarianceShare},
    takes_paths=True,
)
FILTERS = PlugIns(
    "agent_layer.filters",
    "filters",
    {"success_between": SuccessBetween, "input_size": InputSize, "labelled": Labelled},
    takes_paths=True,
)
RAMPS = PlugIns("agent_layer.ramps", "ramp", {"success_ramp": SuccessRamp, "group_ramp": GroupRamp}, takes_paths=True)
_USER_TAGS = {CURRICULA.group: "user_curriculum", FILTERS.group: "user_filter", RAMPS.group: "user_ramp"}


def spell_part(kind: PlugIns, section: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a part as its record has them: those of a part of users are apart."""
    name, tag = section.get("name"), _USER_TAGS[kind.group]
    if not isinstance(name, str) or name in kind.ours or name == tag:
        return dict(section)
    return {"name": tag, "of": name, "options": {key: value for key, value in section.items() if key != "name"}}


def _make_part(kind: PlugIns, name: str, options: Mapping[str, object], method: str) -> object:
    try:
        part = find_part(kind, name, options, 0)(**options)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{kind.what} {name!r}: cannot be made with {dict(options)}, {error}") from error
    if not callable(getattr(part, method, None)):
        raise BadInputError(f"{kind.what} {name!r}: expected a class with a method {method!r}, found none")
    return part
