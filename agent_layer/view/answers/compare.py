"""What the API answers about branches of one trajectory, and about the place where two part."""

from typing import Literal

from agent_layer.store import TrajectoryRow
from agent_layer.view.answers.lists import Answer


class ForkNode(Answer, frozen=True, kw_only=True):
    """One step in the tree of prefixes."""

    step: int
    call_id: str
    choice: int
    parent: int | None
    """Step whose tokens its prompt repeats, or, where ``link`` is ``call``, whose answer led to it."""
    link: Literal["tokens", "call"] | None
    """What ties it to its parent; None: it has none."""
    prefix_length: int
    """Tokens that it shares with its parent; 0 where its prompt stands alone."""
    num_given: int
    """Tokens that its prompt adds."""
    num_sampled: int
    agent: str | None
    conversation: str | None
    status: str | None
    cause: str | None
    """Why its prompt does not continue earlier tokens although it should."""
    is_subagent: bool
    is_abandoned: bool
    """A resume left it, or none continues it while a step of its agent continues another one with the same parent."""


class ForksAnswer(Answer, frozen=True, kw_only=True):
    """The tree of prefixes of one trajectory."""

    nodes: list[ForkNode]
    """Nodes by step."""
    rows: list[list[int]]
    """[num_paths] steps from a root to a leaf, along shared tokens; each is one sample for a trainer."""
    num_tokens: int
    """Tokens of all steps, each prefix once."""
    num_given_again: int
    """Tokens of prompts after a break."""
    causes: dict[str, int]
    """Steps that break their prefix, by cause."""


class DiffStep(Answer, frozen=True, kw_only=True):
    """Two steps at the same place."""

    a: int | None
    """Index of the step; None: the first trajectory has no step here."""
    b: int | None
    is_same: bool
    part: Literal["prompt", "answer"] | None
    """Where they part: in what the prompt adds, or in what the policy answers. None: they do not, or one is missing."""
    at_token: int | None
    """Position among the tokens that the step adds; None: they do not part there, or their ids are not known."""


class DiffAnswer(Answer, frozen=True, kw_only=True):
    """Two trajectories up to where they part."""

    a: TrajectoryRow
    b: TrajectoryRow
    damaged: dict[Literal["a", "b"], str]
    """Why the bytes of one cannot be read; then nothing is compared."""
    first_step: int | None
    """Place of the first pair that differs; None: they are equal."""
    first_token: int | None
    """Position in the layout of both; None: their tokens are equal, or not known."""
    num_tokens_a: int
    num_tokens_b: int
    steps: list[DiffStep]
