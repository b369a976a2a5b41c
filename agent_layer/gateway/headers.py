"""This file holds what the headers of a call say: which call it repeats, and which agent makes it."""

from collections.abc import Mapping
from typing import Literal

from agent_layer.errors import BadInputError
from agent_layer.gateway.retries import Asking
from agent_layer.schema.headers import AGENT_HEADER, CALL_HEADER, ROLE_HEADER
from agent_layer.schema.ids import check_name

__all__ = ["agent_of", "asking_of", "role_of"]

_MAX_DIGITS = 9


def asking_of(headers: Mapping[str, str], digest: int) -> Asking:
    """By what a request can be recognised as a retry.

    Raises: BadInputError: its call id cannot stand in records.
    """
    retries, call_id = headers.get("x-stainless-retry-count", "0"), headers.get(CALL_HEADER)
    return Asking(
        call_id=None if call_id is None else check_name(call_id, f"header {CALL_HEADER}"),
        idempotency_key=headers.get("idempotency-key"),
        retry_count=int(retries[:_MAX_DIGITS]) if retries.isdecimal() else 0,
        digest=digest,
    )


def agent_of(headers: Mapping[str, str]) -> str | None:
    """Name of the agent that calls; None: it is not said.

    Raises: BadInputError: the name is not UTF-8.
    """
    name = headers.get(AGENT_HEADER)
    try:
        return name and name.encode().decode()
    except UnicodeEncodeError as error:
        raise BadInputError(
            f"header {AGENT_HEADER} {name!r}: expected UTF-8, found {error.reason}; correct it"
        ) from error


def role_of(headers: Mapping[str, str]) -> Literal["policy", "aux"] | None:
    """Whether the agent that calls is trained; None: it is not said."""
    name = headers.get(ROLE_HEADER)
    return name if name in ("policy", "aux") else None
