"""Who makes a call: the name of its agent, and whether the policy is to learn from it.

Coding agents name their sub-agents, and some of their side calls, in headers of their own; ours win over them. Side
calls (titles, commit messages) that no header names are found by the model they ask for, or by a declared pattern.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.schema import (
    AGENT_HEADER,
    ROLE_HEADER,
    UNREADABLE,
    JsonObject,
    Role,
    SideCall,
    as_json_objects,
    check_side_calls,
)

SIDE_CALL: Final = "side_call"
"""Finding of a call that is not trained though its client did not ask for that; what decided it follows."""
_MAX_NAME_LENGTH: Final = 128
_SYSTEM: Final = ("system", "developer")


class _AgentHeaders(NamedTuple):
    """Where an agent names the sub-agent that calls. It sends none of these for itself."""

    requires: tuple[str, ...]
    """Without one of them, no sub-agent calls."""
    kinds: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    """The first that is sent names it among those of its kind."""


_AGENTS: Final = (
    _AgentHeaders(  # Claude Code; the second with CLAUDE_CODE_GATEWAY_HINT_HEADERS=1
        requires=("x-claude-code-agent-id",), kinds=("x-claude-code-agent-type",), ids=("x-claude-code-agent-id",)
    ),
    _AgentHeaders(  # Codex
        requires=("x-openai-subagent", "x-codex-parent-thread-id"),
        kinds=("x-openai-subagent",),
        ids=("thread-id", "thread_id", "session-id", "session_id"),
    ),
    _AgentHeaders(  # opencode
        requires=("x-parent-session-id",), ids=("x-session-id", "x-session-affinity", "x-opencode-session")
    ),
)
_AGENT_BY_HEADER: Final = {header: known for known in _AGENTS for header in known.requires}
_SIDE_HEADERS: Final = {
    "x-claude-code-request-class": ("auxiliary",),
    "x-openai-subagent": ("memory_consolidation",),
    "x-openai-memgen-request": ("true",),
}
"""Headers in which agents say that a call is none of their task, and the values that say so."""

_KNOWN: Final[Mapping[str, Sequence[SideCall]]] = {
    "titles": (
        SideCall(system="*generate a concise, sentence-case title*"),  # Claude Code
        SideCall(system="*generate a short kebab-case name*"),
        SideCall(system="*if this message indicates a new conversation topic*"),  # before 2.1
        SideCall(system="*you are a title generator. you output only*"),  # opencode
        SideCall(system="*you will generate a short title based on the first message*"),  # crush
    ),
    "commits": (SideCall(system="*generates concise, one-line git commit messages*"),),  # aider
}
"""Side calls of agents that people use, by kind."""


class Caller(msgspec.Struct, frozen=True):
    """Who makes a call."""

    agent: str | None
    """None: its client does not say."""
    role: Role | None
    """None: what the agent's name implies."""
    reason: str | None = None
    """What made it a side call; None: it is none, or its client says so in our header."""


def read_agent(headers: Mapping[str, str]) -> str | None:
    """Name of the agent that calls; None: no header names it.

    Raises: BadInputError: the name is not UTF-8.
    """
    if not (name := headers.get(AGENT_HEADER)):
        sent = [known for header, known in _AGENT_BY_HEADER.items() if header in headers]
        return next((found for known in sent if (found := _find_agent(headers, known))), None) if sent else None
    try:
        return name.encode().decode()
    except UnicodeEncodeError as error:
        raise BadInputError(
            f"header {AGENT_HEADER} {name!r}: expected UTF-8, found {error.reason}; correct it"
        ) from error


def _find_agent(headers: Mapping[str, str], known: _AgentHeaders) -> str | None:
    if not any(map(headers.get, known.requires)):
        return None
    parts = [next((value for name in names if (value := headers.get(name))), "") for names in (known.kinds, known.ids)]
    name = "/".join(filter(None, parts))[:_MAX_NAME_LENGTH]
    return name.encode("utf-8", "replace").decode() or None


class SideCalls:
    """Declared patterns of calls that the policy does not learn from.

    Args:
        declared: patterns, and names of known kinds.
        subject: names who declares them, in an error.

    Raises: BadInputError: a kind is not known, or a pattern names nothing.
    """

    def __init__(self, declared: Sequence[SideCall | str], subject: str) -> None:
        check_side_calls(declared, subject)
        self._patterns: list[tuple[str, SideCall]] = []
        for one in declared:
            patterns = _KNOWN[one] if isinstance(one, str) else [one]
            self._patterns += [(one if isinstance(one, str) else one.name, pattern) for pattern in patterns]

    def find(self, agent: str | None, request: ChatRequest) -> str | None:
        """Name the pattern that fits a request; None: none does."""
        if not self._patterns:
            return None
        system = (index for index, role in enumerate(request.roles) if role in _SYSTEM)
        prompt = next((index for index in reversed(range(len(request.roles))) if request.roles[index] == "user"), None)
        texts = {
            "model": request.model,
            "agent": agent or "",
            "system": "\n".join(_read_text(request.message(index)) for index in system),
            "prompt": "" if prompt is None else _read_text(request.message(prompt)),
        }
        has_tools = request.has_tools
        return next((name for name, one in self._patterns if _fits(one, texts, has_tools=has_tools)), None)


NO_SIDE_CALLS: Final = SideCalls((), "")


def read_side_calls(setting: str | None) -> SideCalls:
    """Read the setting ``side_calls``. Raises: BadInputError: it is no JSON list of kinds and patterns."""
    try:
        declared = [] if setting is None else msgspec.json.decode(setting, type=list[SideCall | str])
    except UNREADABLE as error:
        raise BadInputError(
            f"setting side_calls: expected a JSON list of kinds and patterns, found {error}; correct"
            " AGENT_LAYER_SIDE_CALLS"
        ) from error
    return SideCalls(declared, "setting side_calls")


def judge_caller(
    headers: Mapping[str, str], request: ChatRequest, rules: Sequence[SideCalls], *, is_aux_model: bool
) -> Caller:
    """Decide who makes a call: what only side calls ask first, then our header, the agent's own, the model, patterns.

    Raises: BadInputError: the name is not UTF-8, or our header names another role.
    """
    agent, role = read_agent(headers), _read_role(headers)
    if request.side_call is not None:
        return Caller(agent, "aux", request.side_call)
    if role is not None:
        return Caller(agent, role)
    for name, values in _SIDE_HEADERS.items():
        if name in headers and headers[name].strip().lower() in values:
            return Caller(agent, "aux", name)
    if is_aux_model:
        return Caller(agent, "aux", "model")
    for rule in rules:
        if found := rule.find(agent, request):
            return Caller(agent, "aux", found)
    return Caller(agent, None)


def _read_role(headers: Mapping[str, str]) -> Role | None:
    if not (named := headers.get(ROLE_HEADER)):
        return None
    role = named.strip().lower()
    if role == "policy" or role == "aux":  # noqa: PLR1714 - narrows the type
        return role
    if role:
        raise BadInputError(f"header {ROLE_HEADER}: expected 'policy' or 'aux', found {named!r}; correct it")
    return None


def _fits(pattern: SideCall, texts: Mapping[str, str], *, has_tools: bool) -> bool:
    patterns = {"model": pattern.model, "agent": pattern.agent, "system": pattern.system, "prompt": pattern.prompt}
    if pattern.has_tools is not None and pattern.has_tools != has_tools:
        return False
    return all(fnmatchcase(texts[name].lower(), one.lower()) for name, one in patterns.items() if one is not None)


def _read_text(message: JsonObject) -> str:
    match message.get("content"):
        case str(text):
            return text
        case parts:
            return "\n".join(str(part.get("text") or "") for part in as_json_objects(parts))
