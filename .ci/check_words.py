"""Word list: finds phrases in prose that this project writes in plainer English (CONTRIBUTING.md, Words).

    python .ci/check_words.py [PATH …]           file:line, the phrase, what to write instead; exit status 1 if any
    python .ci/check_words.py --count [PATH …]   number of findings per folder

It reads docstrings, comments, errors and help texts of Python, comments of Lua, Make, TOML, YAML and shell files, and
all of Markdown except inline code. In tests it skips string literals, because those are data, unless they explain a
failure. It also reads the identifiers of Python and Lua. Standard library only.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Rule(NamedTuple):
    """A phrase to avoid, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


def _phrase(words: str, instead: str) -> Rule:
    gap = r"[\s#]+"  # a phrase may run over a line end, also inside a comment
    return Rule(re.compile(rf"\b(?:{words.replace(' ', gap)})\b", re.IGNORECASE), instead)


PHRASES = [
    _phrase("whoever|whomever|whosoever", "name the subject: the caller, a worker, the client that …"),
    _phrase("of which|of whom", "split the sentence, or use 'whose', 'its' or 'with'"),
    _phrase("anew", "again, new"),
    _phrase("somebody|somebody's|someone", "name the subject: another process, a user"),
    _phrase("nobody|nobody's|no one", "say what happens instead: 'unused', 'no reader needs it'"),
    _phrase("so many", "give the number or the unit: 'this many', 'Number of …'"),
    _phrase("for so long", "give the limit: 'for lease_seconds', 'Seconds without …'"),
    _phrase("lives", "is, is stored in, runs in, lasts"),
    _phrase("(?:is|are|was|were|be|been|being|gets|get) (?:said|told|heard)", "active: the worker reports, receives"),
    _phrase("wants", "needs, requires, expects"),
    _phrase("as it stands", "unchanged, as recorded"),
    _phrase("so be it", "say what follows"),
    _phrase("this (?:file|module|package|folder) holds", "begin with the thing itself"),
]
DOCSTRING_START = Rule(
    re.compile(r"\s*(?:Give|Say|Tell|Hear)s?\b"), "begin with Return, Report, Raise, Receive, Wait …"
)

FIELD_START = Rule(
    re.compile(r"\s*(?:Of|By|As|For|That|In|With)\b"),
    "a field's docstring is a noun phrase or a sentence: name the thing",
)

PARTICIPLES = {
    *("Told", "Said", "Asked", "Shown", "Showing", "Judged", "Listed", "Refused"),
    *("Wanted", "Waiting", "LeftOut", "Leave", "Look", "News", "Outside", "Heard"),
}
PARTICIPLE_WORDS = {"told", "asked", "said"}
LIMIT = re.compile(r"_?(?:MOST|LONGEST|LARGEST)_\w+")
LUA_WORDS = {"hear", "truce", "settle_in", "look_further", "write_down", "hand_on", "hand_on_lapsed", "write_leaving"}
"""Names that the queue's scripts once had."""
LUA_FUNCTION = re.compile(r"\bfunction\s+(\w+)")
LUA_NOT_CODE = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"")

EXEMPT: dict[tuple[str, str], str] = {
    ("*", "num_asked"): "stored in progress.jsonl and in rounds, answered by /api/v1",
    ("*", "sampling_asked"): "stored in steps, answered by /api/v1",
    ("*", "asked_model"): "stored in rounds",
    ("*", "samples_of"): "documents give it to users",
}
"""(path pattern, phrase, identifier or *) → reason. An exemption that covers no finding is an error."""

HASH_COMMENTS = {".toml", ".yaml", ".yml", ".sh", ".service", ".cfg"}
TEXT_SUFFIXES = {".py", ".lua", ".md", *HASH_COMMENTS}
EXPLAINING_CALLS = {"skip", "fail", "xfail", "skipif", "exit"}
SKIPPED_PARTS = {".git", ".venv", "build", "node_modules", "vendor"}


class Text(NamedTuple):
    """A piece of prose: its first line in the file, and whether it is a docstring, and one of a field."""

    line: int
    text: str
    is_docstring: bool = False
    is_field: bool = False


class Finding(NamedTuple):
    """One phrase at one place."""

    path: str
    line: int
    found: str
    instead: str


def python_texts(source: str, *, in_tests: bool) -> Iterator[Text]:
    """Yield docstrings, explaining strings and comments of a module."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    fields = set() if in_tests else set(_field_docstrings(tree))
    explaining = _explaining_strings(tree) if in_tests else None
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in inside:
            continue
        text = _string_value(node)
        if id(node) in docstrings and text:
            yield Text(node.lineno, text, is_docstring=True, is_field=id(node) in fields)
        elif " " in text.strip() and (explaining is None or id(node) in explaining):
            yield Text(node.lineno, text)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from _joined((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


def _field_docstrings(tree: ast.Module) -> Iterator[int]:
    """Yield the ids of the strings that follow a field or a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.Module):
            for before, after in pairwise(node.body):
                if isinstance(before, ast.AnnAssign | ast.Assign) and isinstance(after, ast.Expr):
                    yield id(after.value)


def python_names(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, identifier and suggestion of each name that a module defines and the project would not choose.

    Tests are named by whole sentences, so the names of test functions are free.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) if name.removeprefix("_") in PARTICIPLES:
                yield node.lineno, name, "a record is a noun"
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    continue
                is_property = any("property" in ast.unparse(one) for one in node.decorator_list)
                if name.endswith("_of") and not is_property:
                    yield node.lineno, name, "a function is a verb phrase: find_x, read_x, make_x"
                yield from _weak_words(node.lineno, name)
            case (
                ast.arg(arg=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.MatchAs(name=str(name))
            ):
                yield from _weak_words(node.lineno, name)
            case _:
                pass


def lua_names(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, identifier and suggestion of each name of a script that the project would not choose."""
    code = LUA_NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    for match in re.finditer(r"[A-Za-z_]\w*", code):
        line = code.count("\n", 0, match.start()) + 1
        if match[0] in LUA_WORDS:
            yield line, match[0], "the field's word: requeue, grace_until, flush_removals …"
        yield from _weak_words(line, match[0])
    for match in LUA_FUNCTION.finditer(code):
        if match[1].endswith("_of"):
            yield (
                code.count("\n", 0, match.start()) + 1,
                match[1],
                "a function is a verb phrase: find_x, read_x, make_x",
            )


def _weak_words(line: int, name: str) -> Iterator[tuple[int, str, str]]:
    if PARTICIPLE_WORDS.intersection(name.lower().split("_")):
        yield line, name, "name the thing: request, answer, message, options …"
    if LIMIT.fullmatch(name):
        yield line, name, "a limit begins with max_"


def _string_value(node: ast.Constant | ast.JoinedStr) -> str:
    """Return a string literal, '{}' for each value that is filled in; empty for other constants."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    values = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
    return "".join(value for value in values if isinstance(value, str))


def _explaining_strings(tree: ast.Module) -> set[int]:
    """Ids of the string nodes that a reader sees when a test fails or is skipped."""
    parents: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.Raise():
                parents.append(node)
            case ast.Assert(msg=message) if message is not None:
                parents.append(message)
            case ast.Call(func=ast.Attribute(attr=name)) if name in EXPLAINING_CALLS:
                parents.append(node)
            case _:
                pass
    return {id(child) for parent in parents for child in ast.walk(parent)}


def comment_texts(source: str, mark: str) -> Iterator[Text]:
    """Yield comments that begin with ``mark``, neighbouring lines joined."""
    lines = enumerate(source.splitlines(), 1)
    yield from _joined((number, line.partition(mark)[2]) for number, line in lines if mark in line)


def markdown_texts(source: str) -> Iterator[Text]:
    """Yield all of a document, inline code blanked out so that line numbers stay."""
    yield Text(1, re.sub(r"`[^`\n]+`", lambda code: " " * len(code[0]), source))


def _joined(lines: Iterator[tuple[int, str]]) -> Iterator[Text]:
    """Join lines that follow each other, so that phrases over a line end are found."""
    first, last, texts = 0, -1, list[str]()
    for number, text in lines:
        if texts and number != last + 1:
            yield Text(first, "\n".join(texts))
            texts = []
        first = first if texts else number
        last = number
        texts.append(text)
    if texts:
        yield Text(first, "\n".join(texts))


def list_texts(path: Path, named: str) -> Iterator[Text]:
    """Yield the prose of one file."""
    if path.suffix not in TEXT_SUFFIXES and path.name != "Makefile":
        return
    source = path.read_text()
    if path.suffix == ".py":
        yield from python_texts(source, in_tests=named.startswith("tests/") or path.name == "conftest.py")
    elif path.suffix == ".lua":
        yield from comment_texts(source, "--")
    elif path.suffix == ".md":
        yield from markdown_texts(source)
    else:
        yield from comment_texts(source, "#")


def check_text(text: Text) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and suggestion of each finding in a piece of prose."""
    prose = re.sub(r"``[^`]+``", lambda code: re.sub(r"\S", " ", code[0]), text.text)
    for pattern, instead in PHRASES:
        for match in pattern.finditer(prose):
            yield text.line + prose.count("\n", 0, match.start()), " ".join(match[0].split()), instead
    if text.is_docstring and (match := DOCSTRING_START.pattern.match(prose)):
        yield text.line, f"{match[0].strip()} …", DOCSTRING_START.instead
    if text.is_field and (match := FIELD_START.pattern.match(prose)):
        yield text.line, f"{match[0].strip()} …", FIELD_START.instead


def check_file(path: Path, named: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, finding and suggestion of each phrase and each identifier of a file."""
    for text in list_texts(path, named):
        yield from check_text(text)
    if path.suffix == ".py":
        yield from python_names(path.read_text())
    elif path.suffix == ".lua":
        yield from lua_names(path.read_text())


def list_files(paths: list[str]) -> Iterator[Path]:
    """Yield tracked and new files below the given paths, or of the whole repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in sorted(set(filter(None, names))):
        path = ROOT / name
        if path.is_file() and not SKIPPED_PARTS.intersection(path.relative_to(ROOT).parts):
            yield path


def find_all(paths: list[str]) -> tuple[list[Finding], set[tuple[str, str]]]:
    """Return findings that no exemption covers, and the exemptions that covered one."""
    findings: list[Finding] = []
    used: set[tuple[str, str]] = set()
    for path in list_files(paths):
        named = path.relative_to(ROOT).as_posix()
        if named.startswith(".ci/"):
            continue  # the list itself
        for line, found, instead in check_file(path, named):
            covering = {key for key in EXEMPT if fnmatch(named, key[0]) and key[1] in {"*", found.lower()}}
            used |= covering
            if not covering:
                findings.append(Finding(named, line, found, instead))
    return sorted(findings), used


def name_folder(path: str) -> str:
    """Return the first two folders of a path, or '.' for a file at the top."""
    parts = Path(path).parent.parts[:2]
    return "/".join(parts) or "."


def main() -> int:
    """Print findings, or their number per folder; return the exit status."""
    parser = argparse.ArgumentParser(description="Find phrases that this project writes in plainer English.")
    parser.add_argument("paths", nargs="*", help="files or folders; none: the whole repository")
    parser.add_argument("--count", action="store_true", help="print the number of findings per folder")
    options = parser.parse_args()
    paths = [Path(path).resolve().relative_to(ROOT).as_posix() for path in options.paths]
    findings, used = find_all(paths)
    unused = [] if paths else sorted(set(EXEMPT) - used)
    if options.count:
        counts = Counter(name_folder(finding.path) for finding in findings)
        for folder, number in sorted(counts.items()):
            print(f"{number:6d}  {folder}")
        print(f"{len(findings):6d}  in all")
    else:
        for finding in findings:
            print(f"{finding.path}:{finding.line}: '{finding.found}': {finding.instead}")
        for path, phrase in unused:
            print(f".ci/check_words.py: exemption ({path}, {phrase}) covers nothing; remove it")
    return 1 if findings or unused else 0


if __name__ == "__main__":
    sys.exit(main())
