"""Words of a command line that name files of the directory in which the worker was started.

Attempts run elsewhere, so that ``python agent.py`` would not find its file: such words become absolute paths.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

_PYTHON = re.compile(r"python[\d.]*")


class FoundWords(NamedTuple):
    """A command line that works in any directory."""

    argv: list[str]
    files: list[str]
    """Words of the original that name files of the start directory."""
    needs_modules: bool
    """Whether it runs a module of the start directory (``python -m``), which Python then has to search."""


def find_words(argv: Sequence[str], start: Path, is_in_template: Callable[[str], bool]) -> FoundWords:
    """Replace words that name files of the start directory by absolute paths.

    A word counts if it, or what is behind its ``=``, has a ``/`` or a ``.`` in it, and names a file or folder there
    but none of the template, whose files each attempt has in its working directory.

    Args:
        argv: program and arguments, as typed.
        start: directory in which the worker was started.
        is_in_template: whether a relative path exists in the template.
    """
    words, files = list[str](), list[str]()
    for word in argv:
        option, mark, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
        if _names_file(value, start) and not is_in_template(value):
            files.append(word)
            words.append(f"{option}{mark}{os.path.normpath(start / value)}")
        else:
            words.append(word)
    return FoundWords(words, files, _runs_module(argv, start))


def _names_file(word: str, start: Path) -> bool:
    if word.startswith("/") or not word.strip("./") or not ("/" in word or "." in word) or "\0" in word:
        return False
    try:
        return (start / word).exists()
    except OSError:  # longer than a path may be
        return False


def _runs_module(argv: Sequence[str], start: Path) -> bool:
    if not _PYTHON.fullmatch(Path(argv[0]).name) or "-m" not in argv[:-1]:
        return False
    module = start / argv[argv.index("-m") + 1].replace(".", "/")
    return module.is_dir() or module.with_name(f"{module.name}.py").is_file()
