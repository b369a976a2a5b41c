"""Dockerfiles of tasks: parsed, and as steps that a box can carry out. What it cannot is refused by name and line."""

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

from agent_layer.errors import BadInputError

_HEREDOC: Final = re.compile(r"(?<!\S)\d*<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2(?!\S)")
_VARIABLE: Final = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
_FLAG: Final = re.compile(r"--([a-z]+)(?:=(\S*))?\s+")
_WITHOUT_EFFECT: Final = ("LABEL", "MAINTAINER", "CMD", "EXPOSE", "STOPSIGNAL", "VOLUME", "HEALTHCHECK")
"""The agent's commands run beside no process of the image, as in Harbor, which replaces CMD."""
_ARCHIVES: Final = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.\w+)$")
NETWORK_PROGRAMS: Final = re.compile(
    r"\b(apt-get (?:-\S+ )*(?:update|install)|apt (?:-\S+ )*(?:update|install)|apk (?:-\S+ )*add|dnf (?:-\S+ )*install"
    r"|yum (?:-\S+ )*install|pip3? (?:-\S+ )*install|uv (?:pip install|sync|add|run|tool)|uvx|npm (?:ci|install|i)\b"
    r"|npx|yarn install|pnpm install|curl|wget|git clone|cargo (?:install|fetch|build)|go (?:get|install|mod download)"
    r"|conda install|gem install|huggingface-cli)\b"
)
"""Programs that fetch something, in a shell's text."""


class ImageConfig(NamedTuple):
    """What an image says of the commands that run in it."""

    env: Mapping[str, str]
    workdir: str
    user: str


class Run(NamedTuple):
    """A command of the build."""

    argv: list[str]
    env: Mapping[str, str]
    workdir: str
    line: int


class Copy(NamedTuple):
    """Files of the build's context, or a text."""

    sources: list[str]
    target: str
    """Absolute; a folder if it ends with a slash."""
    mode: int | None
    text: str | None
    line: int


class MakeFolder(NamedTuple):
    """A work directory."""

    path: str


Step: TypeAlias = Run | Copy | MakeFolder


class Instruction(NamedTuple):
    """One instruction, with its heredocs."""

    word: str
    text: str
    texts: list[tuple[str, str, bool]]
    """Name and content of each heredoc, and whether variables in it are replaced."""
    line: int


def parse_dockerfile(path: Path) -> list[Instruction]:
    """Return the instructions of a file.

    Raises: BadInputError: it cannot be read.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: expected a Dockerfile, found {error}; write one") from error
    found, at = list[Instruction](), 0
    while at < len(lines):
        began = at
        text, at = _join_lines(lines, at)
        word, rest = [*text.split(None, 1), "", ""][:2]
        texts = list[tuple[str, str, bool]]()
        for dash, quote, name in _HEREDOC.findall(rest) if word.upper() in ("RUN", "COPY", "ADD") else ():
            body, at = _read_heredoc(lines, at, name, is_indented=bool(dash))
            texts.append((name, body, not quote))
        if word:
            found.append(Instruction(word.upper(), rest.strip(), texts, began + 1))
    return found


def _join_lines(lines: list[str], at: int) -> tuple[str, int]:
    """Return an instruction that begins at a line, without remarks and empty lines, and the line behind it."""
    text = ""
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if line.lstrip().startswith("#") or (text and not line):
            continue
        text += line.removesuffix("\\")
        if not line.endswith("\\"):
            break
    return text, at


def _read_heredoc(lines: list[str], at: int, name: str, *, is_indented: bool) -> tuple[str, int]:
    body = list[str]()
    while at < len(lines):
        line = lines[at].lstrip("\t") if is_indented else lines[at]
        at += 1
        if line == name:
            break
        body.append(f"{line}\n")
    return "".join(body), at


def find_base(instructions: list[Instruction]) -> str:
    """Return the name of the image that the only stage begins with; empty: there is none, or several stages."""
    stages = [one for one in instructions if one.word == "FROM"]
    if len(stages) != 1:
        return ""
    arguments = dict(_read_argument(one.text) for one in instructions if one.word == "ARG")
    words = _substitute(stages[0].text, arguments).split()
    return next((word for word in words if not word.startswith("--")), "")


def list_unfit(instructions: list[Instruction]) -> Iterator[str]:
    """Yield what of a Dockerfile no box of ours can carry out, such as ``line 3: COPY --from=builder``."""
    if sum(one.word == "FROM" for one in instructions) != 1:
        yield "several stages (FROM)" if any(one.word == "FROM" for one in instructions) else "no FROM"
    plan = _Plan(ImageConfig({}, "/", "root"))
    for one in instructions:
        where = f"line {one.line}: {one.word}"
        try:
            plan.add(one)
        except ValueError:  # of quotes, numbers and missing words
            yield f"{where} {one.text[:60]!r}, which has another form"
            continue
        flags, rest = _read_flags(one.text)
        if one.word in ("ADD", "COPY") and not one.texts:
            yield from (f"{where} --{name}" for name in flags if name in ("from", "exclude", "parents"))
            if one.word == "ADD" and any("://" in word or _ARCHIVES.search(word) for word in _split_words(rest)[:-1]):
                yield f"{where} of an address or an archive"
        elif one.word == "RUN":
            yield from (f"{where} --mount={text}" for text in flags.get("mount", ()) if "type=cache" not in text)
        elif one.word not in ("FROM", "ARG", "ENV", "COPY", "ADD", "WORKDIR", "USER", "SHELL", *_WITHOUT_EFFECT):
            yield where


def list_commands(instructions: list[Instruction]) -> str:
    """Return the text of all commands of a build."""
    return "\n".join(one.text + "".join(text for _, text, _ in one.texts) for one in instructions if one.word == "RUN")


def plan_build(instructions: list[Instruction], base: ImageConfig) -> tuple[list[Step], ImageConfig]:
    """Return the steps of a build, and what its image says of commands."""
    plan = _Plan(base)
    for one in instructions:
        plan.add(one)
    return plan.steps, ImageConfig(plan.env, plan.workdir, plan.user)


class _Plan:
    """What a build has set so far."""

    def __init__(self, base: ImageConfig) -> None:
        self.env, self.workdir, self.user = dict(base.env), base.workdir, base.user
        self.steps = list[Step]()
        self._arguments = dict[str, str]()
        self._shell = ["/bin/sh", "-c"]

    def add(self, one: Instruction) -> None:
        """Carry an instruction out, as far as it needs no box. Raises: ValueError: it has another form."""
        flags, rest = _read_flags(one.text)
        known = {**self._arguments, **self.env}
        match one.word:
            case "ARG":
                self._arguments = dict([_read_argument(_substitute(rest, known))]) | self._arguments
            case "ENV":
                self.env |= _read_variables(rest, known)
            case "WORKDIR":
                self.workdir = self._find(_substitute(rest, known).strip("\"'"))
                self.steps.append(MakeFolder(self.workdir))
            case "USER":
                self.user = _substitute(rest, known)
            case "SHELL":
                self._shell = _split_words(rest)
            case "RUN":
                self.steps.append(Run(_read_command(one, rest, self._shell), known, self.workdir, one.line))
            case "COPY" | "ADD":
                self._copy(one, _split_words(_substitute(rest, known)), flags.get("chmod", [""])[0], known)
            case _:
                pass

    def _copy(self, one: Instruction, words: list[str], chmod: str, known: Mapping[str, str]) -> None:
        *sources, target = words
        if not sources:
            raise ValueError("without sources")
        is_folder = target.endswith(("/", "/.")) or target in (".", "..") or len(sources) > 1
        target = self._find(target)
        mode = int(chmod, 8) if chmod else None
        for name, text, is_open in one.texts:
            place = f"{target}/{name}" if is_folder else target
            self.steps.append(Copy([], place, mode, _substitute(text, known) if is_open else text, one.line))
        if kept := [source for source in sources if not _HEREDOC.fullmatch(source)]:
            self.steps.append(Copy(kept, f"{target.rstrip('/')}/" if is_folder else target, mode, None, one.line))

    def _find(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.workdir, path))


def read_ignored(context: Path) -> list[str]:
    """Return the patterns of a context's ``.dockerignore``.

    Raises: BadInputError: it is no text, or one is no pattern.
    """
    file = context / ".dockerignore"
    try:
        lines = file.read_text("utf-8-sig").split("\n") if file.is_file() else []
        patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        is_ignored("", patterns)
    except (OSError, UnicodeDecodeError, re.error) as error:
        raise BadInputError(f"{file}: expected patterns, found {error}; correct it") from error
    return patterns


def _translate(pattern: str) -> re.Pattern[str]:
    """Return a pattern of ``.dockerignore``: ``*`` and ``?`` stay in one folder, ``**`` goes through any number."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^]]+\]|\\.)", posixpath.normpath(pattern.strip("/")))
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    plain = (
        part if part.startswith("[") and part.endswith("]") else re.escape(part.removeprefix("\\")) for part in parts
    )
    return re.compile("".join(known.get(part, one) for part, one in zip(parts, plain, strict=True)), re.DOTALL)


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether a path of a context is left out; the last pattern that fits decides."""
    ignored, parts = False, path.split("/")
    places = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    for pattern in patterns:
        if any(map(_translate(pattern.removeprefix("!")).fullmatch, places)):
            ignored = not pattern.startswith("!")
    return ignored


def _read_command(one: Instruction, rest: str, shell: list[str]) -> list[str]:
    if one.texts:
        first = one.texts[0][1]
        command = _HEREDOC.sub("", rest, count=1).strip()
        if not command:
            return ["/bin/sh", "-c", _write_script(first)] if first.startswith("#!") else [*shell, first]
        body = "".join(f"\n{text}{name}" for name, text, _ in one.texts)
        return [*shell, f"{rest}{body}\n"]
    if rest.startswith("["):
        try:
            words = json.loads(rest)
            if words and isinstance(words, list):
                return [str(word) for word in cast("list[object]", words)]
        except ValueError:
            pass  # a shell's test, as Docker takes it too
    return [*shell, rest]


def _write_script(text: str) -> str:
    return f'f=$(mktemp) && printf %s {shlex.quote(text)} > "$f" && chmod +x "$f" && "$f"'


def _read_flags(text: str) -> tuple[dict[str, list[str]], str]:
    flags = dict[str, list[str]]()
    while found := _FLAG.match(text):
        flags.setdefault(found[1], []).append(found[2] or "")
        text = text[found.end() :]
    if not text:
        raise ValueError("without arguments")
    return flags, text


def _read_argument(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip().strip("\"'")


def _read_variables(text: str, known: Mapping[str, str]) -> dict[str, str]:
    first, _, rest = text.partition(" ")
    if "=" not in first:
        return {first: _substitute(rest.strip(), known)}
    pairs = (_substitute(word, known).partition("=") for word in shlex.split(text))
    return {name: value for name, _, value in pairs}


def _split_words(text: str) -> list[str]:
    if text.startswith("["):
        try:
            return [str(word) for word in cast("list[object]", json.loads(text))]
        except ValueError:
            pass
    return shlex.split(text)


def _substitute(text: str, known: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[0] == "\\$":
            return "$"
        name = found[1] or found[2]
        if found[3] == "+":
            return found[4] if known.get(name) else ""
        return known.get(name) or (found[4] or "" if found[3] == "-" else "")

    return _VARIABLE.sub(value, text)
