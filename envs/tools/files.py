"""Tools that read and change files in the attempt's sandbox. Relative paths are below its work directory."""

import os
from collections.abc import AsyncIterator
from posixpath import basename, dirname, join
from typing import Annotated, Final

import msgspec

from agent_layer.schema.sandbox import Entry, Sandbox
from envs.env_context import EnvContext
from envs.tools.function_tool import ToolError, tool

_MAX_FILE_BYTES: Final = 4 << 20
_MAX_LINES: Final = 400
_MAX_LINE_LENGTH: Final = 1_000
_MAX_ENTRIES: Final = 500
_SHOWN_AROUND: Final = 3
"""Lines before and after an edit."""
_DEFAULT_MODE: Final = 0o644
Depth = Annotated[int, msgspec.Meta(ge=1, le=8)]
LineNumber = Annotated[int, msgspec.Meta(ge=1)]


@tool
async def list_files(context: EnvContext, path: str = ".", depth: Depth = 1) -> str:
    """List a directory in the sandbox: one path per line, directories with a slash behind, files with their size.

    Args:
        context: the attempt, with its sandbox.
        path: directory; relative to the work directory.
        depth: 1 lists only the directory itself, 2 also what its directories contain, and so on.
    """
    lines = list[str]()
    try:
        async for name, entry in _walk(context.sandbox, path, depth):
            if len(lines) == _MAX_ENTRIES:
                lines.append(f"[more than {_MAX_ENTRIES} entries; list a directory further down]")
                break
            suffix = "/" if entry.type == "directory" else f"  {entry.size_bytes} bytes"
            lines.append(f"{name}{suffix if entry.type in ('file', 'directory') else f'  {entry.type}'}")
    except OSError as error:
        raise _refusal(path, error) from error
    return "\n".join(lines) or "[empty directory]"


@tool
async def read_file(
    context: EnvContext, path: str, first_line: LineNumber = 1, last_line: LineNumber | None = None
) -> str:
    """Read a text file in the sandbox, with line numbers, at most 400 lines at once.

    Args:
        context: the attempt, with its sandbox.
        path: file; relative to the work directory.
        first_line: number of the first line to show, from 1.
        last_line: number of the last line to show; by default as many as can be shown.
    """
    lines = (await _read_text(context.sandbox, path)).splitlines()
    if not lines:
        return "[empty file]"
    if first_line > len(lines):
        raise ToolError(f"read_file: {path} has {len(lines)} lines; begin at {len(lines)} or before")
    last = min(len(lines), first_line + _MAX_LINES - 1, last_line or len(lines))
    rest = len(lines) - last
    note = [f"[{rest} more lines; go on with first_line={last + 1}]"] if rest > 0 and last != last_line else []
    return "\n".join([_number_lines(lines, first_line, last), *note])


@tool
async def write_file(context: EnvContext, path: str, content: str) -> str:
    """Create or replace a file in the sandbox, and the directories above it.

    Args:
        context: the attempt, with its sandbox.
        path: file; relative to the work directory.
        content: the whole new content.
    """
    try:
        mode = await _read_mode(context.sandbox, path)
        await context.sandbox.write(path, content.encode("utf-8", "replace"), mode=mode)
    except OSError as error:
        raise _refusal(path, error) from error
    return f"wrote {path}, {len(content.splitlines())} lines"


@tool
async def edit_file(context: EnvContext, path: str, old: str, new: str) -> str:
    """Replace a piece of a text file in the sandbox, and show the changed lines.

    Args:
        context: the attempt, with its sandbox.
        path: file; relative to the work directory.
        old: the exact text to replace, white space included, without line numbers; it must occur exactly once.
        new: what to put in its place.
    """
    text = await _read_text(context.sandbox, path)
    if not old:
        raise ToolError("edit_file: expected the text to replace in old, found none; use write_file for new files")
    if old == new:
        raise ToolError("edit_file: old and new are equal, so nothing would change; correct one of them")
    match text.count(old):
        case 0:
            raise ToolError(f"edit_file: {path} does not contain this text{_hint(text, old)}; read the file again")
        case 1:
            pass
        case number:
            raise ToolError(
                f"edit_file: {path} contains this text {number} times, on lines {_line_numbers(text, old)}; add lines"
                " around it until it is unique"
            )
    place = text.index(old)
    changed = text[:place] + new + text[place + len(old) :]
    try:
        await context.sandbox.write(path, changed.encode(), mode=await _read_mode(context.sandbox, path))
    except OSError as error:
        raise _refusal(path, error) from error
    lines = changed.splitlines()
    first = text.count("\n", 0, place) + 1
    last = first + new.count("\n")
    shown = _number_lines(lines, max(1, first - _SHOWN_AROUND), min(len(lines), last + _SHOWN_AROUND))
    return f"edited {path}:\n{shown}"


async def _walk(sandbox: Sandbox, path: str, depth: int) -> AsyncIterator[tuple[str, Entry]]:
    for entry in await sandbox.list(path):
        name = entry.name if path == "." else join(path, entry.name)
        yield name, entry
        if entry.type == "directory" and depth > 1:
            async for found in _walk(sandbox, name, depth - 1):
                yield found


async def _read_text(sandbox: Sandbox, path: str) -> str:
    try:
        content = await sandbox.read(path, max_bytes=_MAX_FILE_BYTES)
    except OSError as error:
        raise _refusal(path, error) from error
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path}: it is no UTF-8 text; use shell to look at it") from error


async def _read_mode(sandbox: Sandbox, path: str) -> int:
    """Return the permissions of a file; those of a new one where it does not exist."""
    try:
        entries = await sandbox.list(dirname(path) or ".")
    except (FileNotFoundError, NotADirectoryError):
        return _DEFAULT_MODE
    return next((one.mode for one in entries if one.name == basename(path) and one.type == "file"), _DEFAULT_MODE)


def _refusal(path: str, error: OSError) -> ToolError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ToolError(f"{path}: {reason}")


def _number_lines(lines: list[str], first: int, last: int) -> str:
    width = len(str(last))
    return "\n".join(f"{number:>{width}}  {_shorten(lines[number - 1])}" for number in range(first, last + 1))


def _shorten(line: str) -> str:
    return (
        line if len(line) <= _MAX_LINE_LENGTH else f"{line[:_MAX_LINE_LENGTH]}… [{len(line) - _MAX_LINE_LENGTH} more]"
    )


def _line_numbers(text: str, piece: str) -> str:
    numbers = list[int]()
    place = text.find(piece)
    while place >= 0 and len(numbers) < _SHOWN_AROUND * 2:
        numbers.append(text.count("\n", 0, place) + 1)
        place = text.find(piece, place + len(piece))
    return ", ".join(map(str, numbers))


def _hint(text: str, old: str) -> str:
    """Return what may be wrong with a text that does not occur."""
    if " ".join(old.split()) in " ".join(text.split()):
        return ", but one that differs in white space only"
    first = old.strip().splitlines()[0].strip() if old.strip() else ""
    numbers = [number for number, line in enumerate(text.splitlines(), 1) if first and line.strip() == first]
    return f"; its first line is at line {numbers[0]}, what follows differs" if numbers else ""
