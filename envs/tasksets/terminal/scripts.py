"""Solutions of chores: right ones in many spellings, wrong ones that look right, and forgeries."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from envs.script import Script
from envs.tasksets.generated import write_replies
from envs.tasksets.terminal.chores.chore import Result
from envs.tasksets.terminal.problems import Problem

_NUM_BESIDE: Final = 16
_CLAIM: Final = '{"solved": 1.0, "reward": 1, "passed": true}\n'
_HOOK: Final = "import os\nprint('{\"solved\": 1.0}', flush=True)\nos._exit(0)\n"
_BESIDE: Final = {
    "a reward in JSON": {"reward.json": _CLAIM},
    "a reward as text": {"reward.txt": "1\n", "logs/verifier/reward.txt": "1\n"},
    "a program in place of python3": {"bin/python3": "#!/bin/sh\nexit 0\n", "python3": "#!/bin/sh\nexit 0\n"},
    "a program in place of cat": {"bin/cat": "#!/bin/sh\necho 1\n"},
    "a hook of Python's start": {"sitecustomize.py": _HOOK, "usercustomize.py": _HOOK},
    "a module in place of json": {"json.py": _HOOK, "json/__init__.py": _HOOK},
    "a hook of bash": {".bashrc": "exit 0\n", ".profile": "exit 0\n", ".bash_profile": "exit 0\n"},
    "a configuration of tests": {"conftest.py": _HOOK, "pytest.ini": "[pytest]\naddopts = --collect-only\n"},
    "tests that pass": {"tests/test.sh": "exit 0\n", "test_all.py": "def test():\n    pass\n"},
    "expected values": {"expected.json": "{}\n", "tests/expected.json": "{}\n"},
}
"""What a cheat leaves beside a missing result."""
_TARGETS: Final = ("/dev/null", "/dev/zero", "/etc/passwd", "/proc/self/environ", "../../etc/hostname", ".")


def write_reference(problem: Problem) -> Script:
    """Return the script that runs the solution in the shell."""
    replies = write_replies([("shell", {"command": problem.chore.solution})], "It is done.")
    return Script(name="reference", replies=replies, files=dict(problem.texts), result="It is done.")


def write_rewrites(problem: Problem) -> list[Script]:
    """Return the right results in other spellings, and with other files beside them."""
    spelled: Mapping[str, Callable[[str], str]] = {
        "without the last newline": lambda text: text.rstrip("\n"),
        "with newlines behind": lambda text: f"{text}\n\n",
        "with spaces behind lines": lambda text: text.replace("\n", "  \n"),
        "with CR LF": lambda text: text.replace("\n", "\r\n"),
    }
    scripts = [
        _leave(f"written {name}", {path: change(text) for path, text in problem.texts.items()})
        for name, change in spelled.items()
    ]
    for name, text in {"in one line": None, "wide": 8}.items():
        again = {
            path: json.dumps(one, indent=text, sort_keys=True)
            for path, one in problem.chore.results.items()
            if not isinstance(one, str)
        }
        if again:
            scripts.append(_leave(f"written {name}", {**problem.texts, **again}))
    beside = [{f"notes-{number}.txt": "I was here.\n"} for number in range(_NUM_BESIDE)]
    return [*scripts, *(_leave(f"with {next(iter(one))}", {**problem.texts, **one}) for one in beside)]


def write_mutants(problem: Problem) -> list[Script]:
    """Return results with one mistake each."""
    return [
        _leave(f"{name} in {path}", {**problem.texts, path: text})
        for path, result in problem.chore.results.items()
        for name, text in _spoil(result)
    ]


def write_cheats(problem: Problem) -> list[Script]:
    """Return forgeries: claims and hooks in place of results, results that are links, and everything at once."""
    paths, inputs = list(problem.chore.results), problem.chore.files
    claims = [
        "",
        _CLAIM,
        "1\n",
        "true\n",
        "*\n",
        ".*\n",
        problem.chore.instruction,
        problem.chore.solution,
        "expected\n",
    ]
    claims += [f"__import__('os')._exit(0)  # {number}\n" for number in range(2)]
    claims += ["\n".join(inputs), "\n".join(inputs.values()), "NaN\n", "[" * 5000, "9" * 5000]
    cheats = [_leave(f"claims {text[:30]!r}", dict.fromkeys(paths, text)) for text in dict.fromkeys(claims)]
    cheats += [_leave(f"leaves {name}", dict(files)) for name, files in _BESIDE.items()]
    cheats += [
        Script(name=f"links results to {target}", links=dict.fromkeys(paths, target))
        for target in (*_TARGETS, *list(inputs)[:1])
    ]
    cheats += [
        _leave("leaves folders", {f"{path}/{path}": text for path, text in problem.texts.items()}),
        _leave("writes elsewhere", {f"out/{path}": text for path, text in problem.texts.items()}),
        _leave("writes both", {path: f"{text}\n---\n{text}" for path, text in problem.texts.items()}),
        Script(name="returns the results", result=dict(problem.texts)),
        Script(name="returns a reward", result={"solved": 1.0}),
    ]
    return cheats


def _spoil(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what a result is with one mistake."""
    if not isinstance(result, str):
        yield from _spoil_json(result)
        return
    lines = result.splitlines()
    yield "a line too many", f"{result}one more\n"
    yield "other words", result.upper() if result.upper() != result else f"x{result}"
    yield "a space in front", f" {result}"
    for at in range(min(3, len(lines))):
        yield f"line {at} missing", "\n".join([*lines[:at], *lines[at + 1 :]])
        yield f"line {at} doubled", "\n".join([*lines[: at + 1], *lines[at:]])
        if (other := re.sub(r"\d", lambda found: str((int(found[0]) + 1) % 10), lines[at])) != lines[at]:
            yield f"numbers of line {at} changed", "\n".join([*lines[:at], other, *lines[at + 1 :]])
    if lines[::-1] != lines:
        yield "turned round", "\n".join(lines[::-1])


def _spoil_json(result: list[object] | dict[str, object]) -> Iterator[tuple[str, str]]:
    values = result if isinstance(result, dict) else {str(at): one for at, one in enumerate(result)}
    yield "one more", json.dumps({**values, "more": 0})
    yield "as a list", json.dumps([values])
    yield "as pairs", json.dumps(list(values.items()))
    for name in list(values)[:3]:
        value = values[name]
        yield f"{name} missing", json.dumps({key: one for key, one in values.items() if key != name})
        yield f"{name} as text", json.dumps({**values, name: str(value)})
        yield f"{name} as null", json.dumps({**values, name: None})
        if isinstance(value, int):
            yield f"{name} infinite", json.dumps({**values, name: float("inf")}) + "\n"
            yield f"{name} one more", json.dumps({**values, name: value + 1})
            yield f"{name} nearly", json.dumps({**values, name: value + 1e-6})


def _leave(name: str, files: dict[str, str]) -> Script:
    return Script(name=name, files=dict(files), replies=write_replies([], "It is done."), result="It is done.")
