"""Runs Python code in the interpreter that the zygote has started, as ``python3`` would run it in a new one.

Only plain command lines are run so: ``python3 [-I -S -s -E -B] -c CODE …`` and ``python3 FILE.py …``. All others start
the program itself.
"""

import atexit
import io
import os
import signal
import sys
import threading
import types
from typing import NamedTuple, cast

_PROGRAMS = {"python3", "python", sys.executable}
_INTERRUPTED = 256
"""No exit code: the program ends by SIGINT."""
_PLAIN_OPTIONS = {"-I", "-S", "-s", "-E", "-B"}


class Snippet(NamedTuple):
    """A command line that the warm interpreter can run."""

    code: str | None
    """None: read the file."""
    file: str
    argv: list[str]
    is_isolated: bool
    """The current directory, or that of the file, is not searched for modules."""


def find_snippet(argv: list[str], variables: dict[str, str]) -> Snippet | None:
    """Return what a command line runs; None: start the program, which may be or behave as another Python."""
    is_other = variables.get("PATH") != os.environ.get("PATH") or any(name.startswith("PYTHON") for name in variables)
    if argv[0] not in _PROGRAMS or is_other:
        return None
    at, is_isolated = 1, False
    while at < len(argv) and argv[at] in _PLAIN_OPTIONS:
        is_isolated = is_isolated or argv[at] == "-I"
        at += 1
    rest = argv[at:]
    if len(rest) >= 2 and rest[0] == "-c":
        return Snippet(rest[1], "<string>", ["-c", *rest[2:]], is_isolated)
    if rest and rest[0].endswith(".py") and not rest[0].startswith("-"):
        return Snippet(None, rest[0], rest, is_isolated)
    return None


def rehearse() -> None:
    """Run a snippet that does nothing, so that this process has its own copy of the memory that all of them change."""
    code = "import sys\ndef f(x): return [str(one) for one in range(x)]\nf(3)"
    exec(compile(code, "<string>", "exec", dont_inherit=True), types.ModuleType("__main__").__dict__)


def run_snippet(snippet: Snippet, variables: dict[str, str]) -> int:
    """Run a snippet as ``__main__`` and return its exit code."""
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.isatty(1):
        cast("io.TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    for name in [name for name in sys.modules if name.partition(".")[0] == "envs"]:
        del sys.modules[name]  # a snippet may have its own package of this name
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = snippet.argv
    if not snippet.is_isolated:
        sys.path.insert(0, "" if snippet.code is not None else os.path.dirname(os.path.realpath(snippet.file)))
    code = snippet.code
    if code is None:
        main.__file__ = snippet.file
        try:
            with open(snippet.file, "rb") as source:
                text: str | bytes = source.read()
        except OSError as error:
            sys.stderr.write(f"python3: can't open file {snippet.file!r}: [Errno {error.errno}] {error.strerror}\n")
            return 2
    else:
        text = code
    return _finish(_run(text, snippet.file, main))


def _run(text: str | bytes, name: str, main: types.ModuleType) -> int:
    try:
        exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)  # what it is there for
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 255
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001  # any error ends a program so
        inner = error.__traceback__.tb_next if error.__traceback__ else None  # without this function
        sys.excepthook(type(error), error.with_traceback(inner), inner)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _finish(code: int) -> int:
    """Do what an interpreter does before it exits: wait for threads, call exit handlers, write what is buffered."""
    try:
        getattr(threading, "_shutdown")()  # noqa: B009  # no public name; concurrent.futures relies on it too
        getattr(atexit, "_run_exitfuncs")()  # noqa: B009
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  # for example a closed output
        return code or 120
    if code == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code
