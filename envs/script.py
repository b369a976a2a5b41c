"""What stands for an agent without a model: task sets solve and forge with it, scorers are tried on it."""

import msgspec

from agent_layer.schema import JsonObject


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What a scripted agent does in place of a model."""

    name: str
    replies: list[JsonObject] = []
    """Assistant messages, in order, as a model would answer them: ``content``, ``tool_calls``."""
    files: dict[str, str | None] = {}
    """Files below the work directory that these leave behind, by path; None: removed. For judging without an agent."""
    links: dict[str, str] = {}
    """Symbolic links that these leave behind, by path, with their targets."""
    uploads: dict[str, str] = {}
    """Folders of this machine that are copied into the attempt's box first, by their absolute path there."""
    commands: list[list[str]] = []
    """Commands that it runs in the attempt's box; what they leave there is judged in place of ``files``."""
    env: dict[str, str] = {}
    """Variables of these commands."""
    seconds: float = 600.0
    """Longest run of each command."""
    result: object = None
    """What the agent returns."""
