"""Environment variables other than settings: what a process inherits, and what it passes on."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_layer.errors import BadInputError

if TYPE_CHECKING:
    from agent_layer.settings.settings import Settings

SANDBOX_VARIABLE: Final = "AGENT_LAYER_SANDBOX"
"""Address of the sandbox of the attempt that a command is for."""
_OPERATOR: Final = ("AGENT_LAYER_", "AWS_")
"""Beginnings of the names of the operator's variables, secrets among them."""
_FOR_AGENTS: Final = frozenset({"AGENT_LAYER_ADAPTERS_DIR"})
"""No secrets: agents that play tasks of foreign packages find their interpreters by it."""


class Inheritance(NamedTuple):
    """What the starter of a process said of the attempt that it is for."""

    rollout_id: str
    attempt: int
    base_url: str | None
    """Address of the attempt's model; None: clients keep their own."""
    api_key: str
    traceparent: str
    """W3C trace context; empty when there is none."""
    has_log: bool
    """Whether the process may record into the log directory of the settings."""


def read_inheritance(variables: Mapping[str, str] | None = None) -> Inheritance | None:
    """Return the attempt that a process was started for; None without one.

    Args:
        variables: None: those of this process.

    Raises: BadInputError: an attempt is named, but neither an address of its model nor a directory for records.
    """
    environ = os.environ if variables is None else variables
    rollout_id, attempt = environ.get("AGENT_LAYER_ROLLOUT"), environ.get("AGENT_LAYER_ATTEMPT", "0")
    if rollout_id is None:
        return None
    base_url, has_log = environ.get("OPENAI_BASE_URL"), "AGENT_LAYER_DIR" in environ
    if not (base_url or has_log) or not attempt.isdecimal():
        raise BadInputError(
            f"AGENT_LAYER_ROLLOUT={rollout_id}: expected AGENT_LAYER_ATTEMPT and OPENAI_BASE_URL beside it, found"
            f" {attempt!r} and {base_url!r}; start the agent with 'agent-layer work -- COMMAND', or unset it"
        )
    is_ours = f"/r/{rollout_id}-{attempt}/" in (base_url or "")
    return Inheritance(
        rollout_id=rollout_id,
        attempt=int(attempt),
        base_url=base_url if is_ours or not has_log else None,
        api_key=environ.get("OPENAI_API_KEY", ""),
        traceparent=environ.get("TRACEPARENT", ""),
        has_log=has_log,
    )


def read_sandbox_address() -> str | None:
    """Return the address of the sandbox of the attempt that this process is for; None: there is none."""
    return os.environ.get(SANDBOX_VARIABLE) or None


def agent_environment() -> dict[str, str]:
    """Return the variables of this process without the operator's secrets; for agents that it starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OPERATOR) or name in _FOR_AGENTS}


def read_model_key(settings: "Settings") -> str | None:
    """Return the key of an endpoint that is evaluated: ``policy_key``, else OPENAI_API_KEY; None: neither is set."""
    return settings.policy_key or os.environ.get("OPENAI_API_KEY") or None


def set_temporary_directory(path: Path) -> None:
    """Set the directory of temporary files of this process and the programs that it starts."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(path)


def program_environment() -> dict[str, str]:
    """Return the variables of this process; for programs of the same user that it starts."""
    return dict(os.environ)


def adopt_environment(variables: Mapping[str, str]) -> None:
    """Set the operator's variables, and those that are missing, as another process of the same user has them."""
    for name, value in variables.items():
        if name.startswith(_OPERATOR) or name not in os.environ:
            os.environ[name] = value
