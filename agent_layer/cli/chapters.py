"""This file holds how ``agent-layer --help`` reads: commands in chapters, and examples below their options."""

import inspect

import typer

__all__ = ["arrange"]

_CHAPTERS = {
    "Run agents": ("up", "submit", "work", "trace"),
    "Watch and steer": ("tasks", "rollouts", "groups", "runs", "workers", "dead"),
    "Ask and judge": ("query", "show", "summary", "reward", "rescore"),
    "Train": ("train", "replay", "demo"),
    "Look after the machines": ("doctor", "serve", "ingest", "engines", "store", "export"),
}
_OTHERS = "More"
_EMPTY_LINE = "\n\n"


def arrange(app: typer.Typer) -> None:
    """Put the commands into chapters, and let what they say of themselves fill the width of any terminal."""
    places = {name: chapter for chapter, names in _CHAPTERS.items() for name in names}
    order = list(places)
    for one in (*app.registered_commands, *app.registered_groups):
        one.rich_help_panel = places.get(_name(one), _OTHERS)
    app.registered_commands.sort(key=lambda one: order.index(_name(one)) if _name(one) in places else len(order))
    app.registered_groups.sort(key=lambda one: order.index(_name(one)) if _name(one) in places else len(order))
    _fill(app)


def _fill(app: typer.Typer) -> None:
    parts = [one.typer_instance for one in app.registered_groups if one.typer_instance is not None]
    callbacks = [part.registered_callback for part in parts if part.registered_callback is not None]
    for one in (*app.registered_commands, *callbacks):
        if (text := inspect.getdoc(one.callback)) is not None:
            one.help, one.epilog = (_EMPTY_LINE.join(lines) for lines in _parted(text))
    for part in parts:
        _fill(part)


def _parted(text: str) -> tuple[list[str], list[str]]:
    """Paragraphs, each in one line however wide the docstring is; and lines of examples: what begins with a command."""
    said: list[str] = []
    examples: list[str] = []
    for part in text.split(_EMPTY_LINE):
        lines = [line.strip() for line in part.splitlines()]
        if lines[0].startswith("agent-layer "):
            examples += lines
        else:
            said.append(" ".join(lines))
    return said, examples


def _name(one: object) -> str:
    name, callback = getattr(one, "name", None), getattr(one, "callback", None)
    return name if isinstance(name, str) else getattr(callback, "__name__", "").replace("_", "-")
