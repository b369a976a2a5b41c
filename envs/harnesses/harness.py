"""Declaration of a coding agent: its pinned version, what an attempt writes and starts, and what its check needs.

Texts of a declaration may name ``$base_url`` (with /v1), ``$root_url`` (without), ``$api_key``, ``$model``, ``$home``,
``$work``, ``$prompt``, ``$context_tokens`` and ``$output_tokens``; ``$$`` is a dollar. In an object, a text that is
only the name of a number becomes that number.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final, Literal, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, Limits
from envs.commands import OUTSIDE, CommandPlace, CommandPlan

Installer: TypeAlias = Literal["npm", "pypi"]
Dialect: TypeAlias = Literal["chat", "responses", "messages", "google"]
FileText: TypeAlias = str | JsonObject
"""Text of a file, or an object that is written as JSON."""

_FOREIGN: Final = (
    *("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "GEMINI_API_KEY", "OPENAI_MODEL"),
    *("ANTHROPIC_MODEL", "ANTHROPIC_AUTH_TOKEN", *sorted(OUTSIDE)),
)
"""Variables of a person's own agents, which an attempt does not inherit."""
LOCKS: Final = Path(__file__).parent / "locks"
"""Locks of our own declarations: ``NAME/package-lock.json`` or ``NAME/requirements.txt``, with hashes."""


class _Package(msgspec.Struct, frozen=True):
    """What .ci/lock_harness.py writes into the package.json of a lock; npm does not read it."""

    lacks: list[str] = []
    """Optional packages that the registry did not have."""


class ToolShape(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the agent, as the check's scripted model calls it."""

    name: str
    arguments: JsonObject
    """Arguments with ``$command`` for a shell, ``$prompt`` for a sub-agent."""


class SideCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the agent makes beside its task, such as one for a title; it is ``aux``: recorded, not trained."""

    what: str
    mark: Literal["header", "model"]
    """``header``: the agent sends ``x-agent-layer-role: aux`` with it. ``model``: it asks for the model ``aux``."""
    pattern: str
    """Regular expression that some message of it matches, and no other call's."""


class Harness(msgspec.Struct, frozen=True, kw_only=True):
    """One coding agent at one version."""

    name: str
    package: str
    """Name at npm or PyPI."""
    version: str
    installer: Installer
    program: str
    """Name of its executable."""
    python: str = "3.11"
    """Interpreter of a PyPI package, as major.minor."""
    start_arguments: list[str] = msgspec.field(default_factory=lambda: ["--version"])
    """Command line that starts it once it is installed, asks no model, and ends at once."""
    runs_scripts: bool = False
    """Its npm packages need their install scripts; without this none runs."""
    lock: Path | None = None
    """Folder of the lock; None: ours, ``LOCKS/NAME``."""
    dialect: Dialect
    arguments: list[str]
    """Command line behind the program."""
    resume_arguments: list[str] | None = None
    """Command line that continues the last conversation of the same HOME and directory; None: it cannot."""
    environment: dict[str, str] = {}
    files: dict[str, FileText] = {}
    """Files by path below HOME."""
    answer_command: str | None = None
    """Shell command that prints its last message once it has ended, with ``$folder`` of its installation; None: its
    standard output is that."""
    side_calls: list[SideCall] = []
    sampling: JsonObject = msgspec.field(default_factory=lambda: {"temperature": 1.0})
    """What takes the place of its own sampling in tasks for training, and in its check; a task's own wins."""
    limits: Limits = Limits(wall_seconds=3600.0, turns=250)
    """Limits of tasks that name none; a task's own win, one by one."""
    switched_off: list[str] = []
    """What its configuration switches off, and why."""
    findings: list[str] = []
    """Findings that a clean script may raise; any other fails its check."""
    context_tokens: int = 131_072
    """Context that its configuration announces."""
    output_tokens: int = 8192
    """Longest answer that its configuration announces."""
    shell: ToolShape | None = None
    """None: it calls no tools; the check speaks to it in text."""
    sub_agent: ToolShape | None = None
    """None: it has none."""
    waits: ToolShape | None = None
    """Call that waits for the sub-agent ``$agent``, which works beside its own turns; None: it waits by itself."""
    agent_id: str = ""
    """Regular expression whose group is what the start of a sub-agent returns for ``waits``."""
    names_agents: bool = False
    """Each sub-agent has a name of its own in what it sends, by which it is credited."""
    edit: str | None = None
    """Answer that edits a file, for an agent without tools."""
    finish: ToolShape | None = None
    """Call that ends it; None: a message without calls does."""
    compaction: str | None = None
    """Regular expression that the first or the last message of its request for a summary matches; None: it has none."""
    compact_tokens: int | None = None
    """Context that its configuration announces in the check, so that a long run is compacted; None: it cannot be."""

    @property
    def lock_folder(self) -> Path:
        """Return the folder with its lock."""
        return self.lock or LOCKS / self.name

    def list_lacking(self) -> list[str]:
        """Return the optional packages, builds for other machines among them, that its lock does not have."""
        package = self.lock_folder / "package.json"
        return msgspec.json.decode(package.read_bytes(), type=_Package).lacks if package.exists() else []

    def make_plan(self, program: Path, place: CommandPlace, *, resumes: bool = False) -> CommandPlan:
        """Return what one attempt writes and starts.

        Args:
            program: its executable, as the attempt sees it.
            place: where it runs.
            resumes: continue the last conversation of this HOME.

        Raises: BadInputError: the declaration names a value that does not exist, or cannot resume.
        """
        arguments = self.resume_arguments if resumes else self.arguments
        if arguments is None:
            raise BadInputError(f"harness {self.name!r}: cannot continue a conversation; begin another attempt")
        known = {name: getattr(place, name) for name in ("base_url", "api_key", "model", "home", "prompt")}
        own = {"context_tokens": self.context_tokens, "output_tokens": self.output_tokens}
        folder = str(program.parents[2 if self.installer == "npm" else 1])
        known |= own | {"root_url": place.anthropic_url, "work": place.workdir, "folder": folder}
        filled = _Filling(self.name, known)
        argv = [str(program), *filled.texts(arguments)]
        if self.answer_command is not None:
            in_shell = _Filling(self.name, {name: shlex.quote(str(value)) for name, value in known.items()})
            argv = ["/bin/sh", "-c", f'"$0" "$@" >&2 && {in_shell.text(self.answer_command)}', *argv]
        inherited: dict[str, str | None] = dict.fromkeys(_FOREIGN, None)
        return CommandPlan(
            argv=argv,
            env=inherited | {name: filled.text(text) for name, text in self.environment.items()},
            home_files={filled.text(path): filled.file(text) for path, text in self.files.items()},
        )


class _Filling:
    """Fills placeholders with the values of one attempt."""

    def __init__(self, subject: str, known: Mapping[str, str | int]) -> None:
        self._subject, self._known = subject, known

    def text(self, text: str) -> str:
        try:
            return Template(text).substitute(self._known)
        except (KeyError, ValueError) as error:
            raise BadInputError(
                f"harness {self._subject!r}: expected placeholders among {', '.join(sorted(self._known))} ('$$' is a"
                f" dollar), found {error}; correct its declaration"
            ) from error

    def texts(self, texts: Sequence[str]) -> list[str]:
        return [self.text(one) for one in texts]

    def file(self, content: FileText) -> str:
        if isinstance(content, str):
            return self.text(content)
        return msgspec.json.format(msgspec.json.encode(self.value(content))).decode() + "\n"

    def value(self, value: object) -> object:
        """Fill all texts inside a JSON value."""
        match value:
            case str():
                known = self._known.get(value.removeprefix("$"))
                return known if value.startswith("$") and isinstance(known, int) else self.text(value)
            case dict():
                members = cast("dict[str, object]", value)
                return {self.text(name): self.value(one) for name, one in members.items()}
            case list():
                return [self.value(one) for one in cast("list[object]", value)]
            case _:
                return value


def fill_tool(tool: ToolShape, **values: str) -> tuple[str, JsonObject]:
    """Return name and arguments of a call."""
    return tool.name, cast("JsonObject", _Filling(tool.name, values).value(tool.arguments))
