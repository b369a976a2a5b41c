"""What a chore is: files to begin with, what is asked, the files that must be there at the end, a way to get them."""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

import msgspec

Result: TypeAlias = str | list[object] | dict[str, object]
"""A text, compared line by line without spaces at the ends; or what JSON must hold, compared by value."""


class Chore(msgspec.Struct, frozen=True, kw_only=True):
    """One chore, drawn."""

    instruction: str
    """What the agent reads."""
    files: Mapping[str, str] = {}
    """Texts that the work directory begins with, by path."""
    prepare: str = ""
    """Program in bash that makes of these what a text cannot be: archives, databases, repositories, modes, links."""
    solution: str
    """Program in bash that solves it; found without a look at how ``results`` were calculated."""
    results: Mapping[str, Result]
    """What must be there at the end, by path."""


Draw: TypeAlias = Callable[[Random], Chore]

PREPARE_GIT = (
    "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1\n"
    "commit() {\n"
    '  git -C repo add -A && GIT_AUTHOR_DATE="$3" GIT_COMMITTER_DATE="$3" git -C repo -c user.name="$1"'
    ' -c user.email="$1@example.org" commit -q --allow-empty -m "$2"\n'
    "}\n"
    "git init -q -b main repo\n"
)
"""Beginning of programs that make a repository; ``commit AUTHOR MESSAGE DATE`` takes all that changed."""


def python(program: str) -> str:
    """Return a program in Python as one in bash."""
    return f"python3 - <<'END'\n{program.strip()}\nEND\n"


def join_lines(lines: list[str]) -> str:
    """Return lines as a text; each ends with a newline."""
    return "".join(f"{line}\n" for line in lines)
