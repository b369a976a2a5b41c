"""Labels given after an attempt: how they are checked, and how each supersedes the one before."""

import time
from collections.abc import Callable, Mapping
from typing import Final, TypedDict, cast

from redis import Redis

from agent_layer.errors import BadInputError
from agent_layer.infra import Keys
from agent_layer.schema import Label, RewardSource, new_id
from agent_layer.store.index.rows import GivenLabel, TrajectoryRow, read_given_labels

MAX_LABEL_LENGTH: Final = 128
"""Most characters of its name."""
MAX_VALUE_LENGTH: Final = 256
"""Most characters of its value."""
MAX_LABELS: Final = 64
"""Names that may be given to one trajectory, withdrawn ones included: each search reads all labels of a row."""
_TICK: Final = 1e-6
"""Seconds; ranks are exact to the microsecond."""


class LabelOptions(TypedDict, total=False):
    """Fields of a label beside its name and value."""

    source: RewardSource
    """Source of the label; ``human`` when left out."""
    comment: str | None
    """A person's comment."""


def read_known_labels(redis: Redis, keys: Keys, trajectory_id: str) -> dict[str, GivenLabel]:
    """Return the labels that were given to a trajectory and count, by name; withdrawn ones included."""
    return read_given_labels(cast("bytes | None", redis.hget(keys.trajectory(trajectory_id), "given_labels")))


def make_label(  # noqa: PLR0913  # what is known, and what is new
    row: TrajectoryRow,
    name: object,
    value: object,
    options: LabelOptions,
    known: Mapping[str, GivenLabel],
    run: str,
    *,
    clock: Callable[[], float] = time.time,
) -> Label:
    """Make a label that counts from now on, whatever the clocks of earlier writers said.

    Args:
        row: of the trajectory.
        name: of the label.
        value: None withdraws it.
        options: see LabelOptions.
        known: what counts now, by name.
        run: for trajectories whose beginning is not stored.
        clock: seconds since the epoch.

    Raises: BadInputError: name or value cannot be a label's, there are too many, or there is nothing to withdraw.
    """
    subject = f"label of trajectory {row.trajectory_id!r}"
    name = _checked(name, f"name of a {subject}", MAX_LABEL_LENGTH)
    if "=" in name:
        raise BadInputError(f"name of a {subject}: expected no '=', found {name!r}; it ends where the value begins")
    if value is None and name not in row.labels:
        held = ", ".join(sorted(row.labels)) or "none"
        raise BadInputError(
            f"{subject}: expected one that it has ({held}) to withdraw, found {name!r}; name one of these"
        )
    if name not in known and len(known) >= MAX_LABELS:
        raise BadInputError(f"{subject}: expected at most {MAX_LABELS} names, found another one; use a known name")
    earlier = float(known[name].rank.split()[0]) + _TICK if name in known else 0.0
    return Label(
        trajectory_id=row.trajectory_id,
        label_id=new_id(),
        run=row.run or run,
        at=max(clock(), earlier),
        name=name,
        value=None if value is None else _checked(value, f"value of {name!r}, {subject}", MAX_VALUE_LENGTH),
        source=options.get("source", "human"),
        comment=options.get("comment"),
    )


def _checked(text: object, subject: str, longest: int) -> str:
    if isinstance(text, str) and 0 < len(text) <= longest and text.isprintable() and text == text.strip():
        return text
    found = f"{len(text)} characters" if isinstance(text, str) and len(text) > longest else repr(text)
    raise BadInputError(
        f"{subject}: expected a text of 1 to {longest} characters that can be printed, without spaces at its ends,"
        f" found {found}; write another"
    )
