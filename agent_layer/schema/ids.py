"""Ids that sort by time, ids derived from other ids, owners of stored records, and content hashes."""

import os
import re
import time
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, TypeAlias, get_args

from agent_layer.errors import BadInputError

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]

OwnerKind: TypeAlias = Literal["trajectory", "group", "policy", "batch"]

_MARKS = tuple(f"{kind}:" for kind in get_args(OwnerKind))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}")


def new_id(clock_ns: Callable[[], int] = time.time_ns, randomness: Callable[[int], bytes] = os.urandom) -> str:
    """Mint an id of 26 characters that sorts by the millisecond of its creation (ULID layout)."""
    value = (clock_ns() // 1_000_000) << 80 | int.from_bytes(randomness(10), "big")
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])


def id_timestamp(identity: str) -> float:
    """Return when an id was minted, in seconds since the epoch; text after the id is ignored."""
    milliseconds = 0
    for letter in identity[:10]:
        milliseconds = milliseconds << 5 | _ALPHABET.index(letter)
    return milliseconds / 1000


def check_name(value: str, subject: str) -> str:
    """Return the name if it can stand in keys, paths and addresses.

    Raises: BadInputError: it is empty, too long, or has a character that would need escaping somewhere.
    """
    if _NAME.fullmatch(value):
        return value
    raise BadInputError(
        f"{subject} {value!r}: expected 1 to 128 characters of letters, digits and . _ : ~ - with a letter or digit"
        " first; choose another name"
    )


def content_hash(content: bytes) -> str:
    """Return 32 hexadecimal digits that identify the content."""
    return blake2b(content, digest_size=16).hexdigest()


def derive_seed(*parts: int | str) -> int:
    """Return a seed of 53 bits, which JSON can carry, that follows from these parts alone."""
    return int(content_hash("\n".join(map(str, parts)).encode()), 16) >> 75


def make_group_id(run: str, task_id: str, round_index: int) -> str:
    """Return the id of the group of one round of a task; the same round gives the same id."""
    digest = content_hash(f"{run}\n{task_id}\n{round_index}".encode())
    return f"{task_id}.{digest[:12]}"


def make_rollout_id(group_id: str, member: int) -> str:
    """Return the id of one rollout of a group; members count from 0."""
    return f"{group_id}.{member}"


def make_trajectory_id(rollout_id: str, attempt: int) -> str:
    """Return the trajectory id of one attempt at a rollout; attempts count from 0."""
    return f"{rollout_id}-{attempt}"


def split_trajectory_id(trajectory_id: str) -> tuple[str, int]:
    """Return (rollout id, attempt).

    Raises: BadInputError: not a trajectory id.
    """
    rollout_id, dash, attempt = trajectory_id.rpartition("-")
    if dash and rollout_id and attempt.isdecimal():
        return rollout_id, int(attempt)
    raise BadInputError(
        f"trajectory {trajectory_id!r}: expected ROLLOUT-ATTEMPT, such as 'guess-3.1f0c9a7be2d4.0-0';"
        " 'agent-layer query' lists trajectory ids"
    )


def owner_text(kind: OwnerKind, name: str) -> str:
    """Return the text that names an owner of records in segments, tombstones and scripts.

    A trajectory is named by its id alone; one whose id begins like the text of another kind has its own kind before it,
    too, so that no two owners share a text. The index's lua/keys.lua has the same rule.
    """
    is_plain = kind == "trajectory" and not name.startswith(_MARKS)
    return name if is_plain else f"{kind}:{name}"


@lru_cache(maxsize=1_024)
def trajectory_owner(trajectory_id: str) -> str:
    """Return the owner of a trajectory's records; see ``owner_text``."""
    return owner_text("trajectory", trajectory_id)


def split_owner(owner: str) -> tuple[OwnerKind, str]:
    """Return (kind, name) of an owner; the inverse of ``owner_text``."""
    for kind, mark in zip(get_args(OwnerKind), _MARKS, strict=True):
        if owner.startswith(mark):
            return kind, owner.removeprefix(mark)
    return "trajectory", owner
