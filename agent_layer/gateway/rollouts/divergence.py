"""Diagnosis of a prompt that does not continue the tokens of an earlier call, though it should.

Whether it does is known from the tokens alone. Only where they break are the answers in its history compared: is each
what the model wrote, and does it stand where it stood?
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.gateway.rollouts.answers import Form, Returned

BreakCause: TypeAlias = Literal[
    "template", "reserialised_tool_call", "dropped_reasoning", "edited_history", "compaction"
]
"""``template``: the messages are the same, but the chat template writes them otherwise. ``reserialised_tool_call``: the
arguments of a tool call say the same in another JSON text. ``dropped_reasoning``: an answer came back without what was
thought; the setting ``dropped_reasoning`` puts it back. ``edited_history``: a message was changed, put in or taken
out. ``compaction``: the history became shorter, as when a summary takes its place."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request's messages."""

    answers: Sequence[Returned]
    """Answers in order."""
    num_messages: int
    num_equal: int = 0
    """Messages at the beginning that were asked just so before; 0: none."""
    num_continued: int = -1
    """Messages that were asked in the call whose tokens this prompt continues; -1: it continues none."""
    longest: int = 0
    """Messages of the longest request in the conversation that it begins with."""


_CAUSES: Final[Mapping[Form, BreakCause]] = MappingProxyType(
    {"same": "template", "reserialised": "reserialised_tool_call", "unreasoned": "dropped_reasoning"}
)


def cause_of_break(seen: History) -> BreakCause | None:
    """Why the prompt does not continue the last answer in its history; None: it does, or it begins a conversation.

    A history that shares neither an answer nor its whole opening with earlier ones begins a conversation.
    """
    missed = [answer for answer in seen.answers if answer.index > seen.num_continued]
    known = [answer for answer in missed if answer.form != "unknown"]
    at_fork = next((answer for answer in missed if seen.num_equal and answer.index == seen.num_equal), None)
    if at_fork and at_fork.form != "unknown":
        return _CAUSES[at_fork.form]
    if known:
        return "compaction" if known[-1].index < (known[-1].stood_at or 0) else "edited_history"
    if seen.num_messages < seen.longest and seen.num_continued < seen.num_equal:
        return "compaction"
    return "edited_history" if at_fork else None
