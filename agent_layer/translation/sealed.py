"""Reasoning and calls as opaque texts: what clients send back unread, so that an answer is known as it was sampled."""

from base64 import b64decode, b64encode
from typing import Final

import msgspec

from agent_layer.schema import UNREADABLE, JsonObject, mend_surrogates

_SEAL: Final = "agent-layer:"
_MARK: Final = b"agent-layer 1 "


def seal_reasoning(text: str) -> str:
    """Return reasoning as the opaque text that clients keep where they keep nothing else of it."""
    return _SEAL + b64encode(text.encode()).decode()


def open_reasoning(sealed: object) -> str | None:
    """Return reasoning that was sealed here; None: another party sealed it, or nothing is sealed."""
    if not isinstance(sealed, str) or not sealed.startswith(_SEAL):
        return None
    try:
        return b64decode(sealed[len(_SEAL) :], validate=True).decode()
    except ValueError:
        return None


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """What a part says to those who wrote it, beside what its reader sees."""

    thought: str = ""
    """All that was thought before it, since the answer began."""
    call_id: str = ""
    arguments: str | None = None
    """Arguments of the call, as the model wrote them."""

    def encode(self) -> str:
        """Return it as Google's signatures are written, in base64."""
        return b64encode(_MARK + msgspec.json.encode(self)).decode()


_SIGNATURE: Final = msgspec.json.Decoder(Signature)


def read_signature(text: object) -> Signature | None:
    """Return what a part was signed with; None: nothing, or it is a signature of others."""
    if not isinstance(text, str):
        return None
    try:
        found = b64decode(text.replace("-", "+").replace("_", "/") + "==")  # clients write either alphabet
        return _SIGNATURE.decode(found.removeprefix(_MARK)) if found.startswith(_MARK) else None
    except (*UNREADABLE, ValueError):  # it is no base64, or no text that we wrote
        return None


def parse_arguments(text: str) -> JsonObject:
    """Read what the model wrote; where that is no JSON object, the call is shown without arguments."""
    try:
        return _ARGUMENTS.decode(mend_surrogates(text.encode()))
    except (*UNREADABLE, UnicodeEncodeError):
        return {}


_ARGUMENTS: Final = msgspec.json.Decoder(JsonObject)
