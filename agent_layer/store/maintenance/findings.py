"""Findings of an audit: differences between index and objects, and decisions that contradict each other."""

from typing import Literal, TypeAlias

import msgspec

FindingKind: TypeAlias = Literal[
    "corrupt",
    "unindexed",
    "missing",
    "misfiled",
    "undead",
    "short",
    "lost",
    "doubled",
    "regrouped",
    "unaccepted",
    "ungrouped",
    "misnamed",
]
"""``corrupt``: bytes of a segment or blob do not match their checksum; only a copy helps. ``unindexed``: the index
lacks content of a segment. ``missing``: the index names bytes that do not exist. ``misfiled``: the search index
contradicts a trajectory's row. ``undead``: the index lacks a deletion. ``short``: an accepted attempt lacks calls that
its gateway counted, for good. ``lost``: a blob is gone for good. ``doubled``: two attempts of one rollout are accepted.
``regrouped``: two records of one group name other members. ``unaccepted``: a group or a trainer's ledger names what was
not accepted. ``ungrouped``: the record of its group does not name an accepted attempt. ``misnamed``: an owner is
written as one of another kind; it is read under its own."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between index and objects, or one contradiction among the objects."""

    kind: FindingKind
    subject: str
    """Segment name, trajectory id, rollout id, group id, or step of a run."""
    detail: str
    """What was found, and what to do."""
