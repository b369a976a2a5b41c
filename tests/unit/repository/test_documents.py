"""Documents show what is true today: their commands, options and settings exist."""

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import typer

from agent_layer.cli.main import build
from agent_layer.health import STEP_CHECKS
from agent_layer.health.checks import LIVE_CHECKS
from agent_layer.settings import Settings
from agent_layer.times import format_span
from trainer_adapter.config import load_config
from trainer_adapter.supervised.config import load_supervised

from ...documents import DOCUMENTS, ROOT, blocks

SET_BY_US = {
    "AGENT_LAYER_TASK",
    "AGENT_LAYER_ROLLOUT",
    "AGENT_LAYER_ATTEMPT",
    "AGENT_LAYER_RAY_DIRECTORY",
    "AGENT_LAYER_START_DIR",
}
"""Variables that workers set for programs."""


def command_lines() -> set[tuple[str, str]]:
    """(document, words after agent-layer) of each command line, in blocks and in inline code."""
    line = re.compile(r"(?:^(?:\.venv/bin/)?|`)agent-layer +([^`\n]+?)(?:\s+#.*)?(?:`|$)", re.MULTILINE)
    return {(str(path.relative_to(ROOT)), words) for path in DOCUMENTS for words in line.findall(path.read_text())}


def unknown_words(root: Any, line: str) -> Iterator[str]:
    """Commands and options of a line that do not exist; what follows '--' or '|' is not ours."""
    words = iter(list(takewhile(lambda word: word not in {"--", "|", "…", "<"}, shlex.split(line))))
    command, options = root, option_names(root)
    for word in words:
        if word.startswith("-"):
            if word.split("=")[0] not in options:
                yield word
            if any(word in option.opts and not option.is_flag for option in command.params):
                next(words, None)  # its value is no command
        elif hasattr(command, "get_command"):  # typer's own class of groups is private
            found = command.get_command(typer.Context(command), word)
            if found is None:
                yield word
                return
            command = found.load() if hasattr(found, "load") else found
            options |= option_names(command)


def option_names(command: Any) -> set[str]:
    shown = {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
    return shown | {"--help", "--version"}


def test_every_program_is_python():
    assert len(blocks("python")) > 10
    for document, program in blocks("python"):
        compile(program, document, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_configuration_is_one_that_a_trainer_takes(tmp_path: Path):
    whole = "model: m\ntasks: t\nsteps: 1\n"
    configurations = [text if "model:" in text else whole + text for _, text in blocks("yaml")]
    path = tmp_path / "config.yaml"

    assert configurations
    for text in configurations:
        path.write_text(text)
        if "dataset:" in text:
            assert load_supervised(path, "sft").batch_size > 1
        else:
            assert load_config(path).rollouts.max_staleness == 1


def test_every_command_and_option_exists():
    root = typer.main.get_command(build())
    lines = command_lines()
    unknown = {(document, line, word) for document, line in lines for word in unknown_words(root, line)}

    assert len(lines) > 60
    assert unknown == set()


def test_every_setting_exists():
    known = {f"AGENT_LAYER_{name.upper()}" for name in Settings.model_fields} | SET_BY_US
    named = {name for path in DOCUMENTS for name in re.findall(r"AGENT_LAYER_[A-Z0-9_]+[A-Z0-9]", path.read_text())}

    assert named - known == set()


def test_every_make_target_exists():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {
        name for path in DOCUMENTS for name in re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }

    assert phony
    assert {"demo", "test", "check", "bench", "setup"} <= named
    assert named - set(phony[1].split()) == set()


def test_the_table_of_health_is_the_catalogue():
    rows = {
        f"| `{one.name}` | {one.measures} | {one.unit} | {_limit(one.warn)} | {_limit(one.stop)} | {one.steps} |"
        for one in STEP_CHECKS
    }

    assert rows <= set((ROOT / "docs/how-to/training.md").read_text().splitlines())


def test_the_table_of_alarms_of_this_moment_is_the_catalogue():
    limits = {
        one.name: ("duration", format_span(one.warn or 0))
        if one.unit == "seconds"
        else (one.unit, ("below " if one.is_low_bad else "") + _limit(one.warn))
        for one in LIVE_CHECKS
    }
    rows = {f"| `{one.name}` | {one.measures} | {' | '.join(limits[one.name])} |" for one in LIVE_CHECKS}

    assert rows <= set((ROOT / "docs/how-to/operate.md").read_text().splitlines())


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
