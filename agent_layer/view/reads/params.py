"""What a request asks for: parts of its path, parameters, filters with the names of the command line."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from agent_layer.errors import BadInputError
from agent_layer.store import FIELDS, Filters, parse_which
from agent_layer.times import parse_range

_BY_VALUE: Final = tuple(field.filter for field in FIELDS if field.filter is not None)
FILTERS: Final = (*_BY_VALUE, "policy", "reward", "label", "since", "until", "accepted", "step")
"""Parameters that select trajectories."""


class RequestParams(NamedTuple):
    """One request."""

    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    is_operator: bool = False
    takes_writes: bool = False
    """Whether the server does, from operators."""

    def text(self, name: str) -> str | None:
        """The value of a parameter; None: it is not there, or empty.

        Raises: BadInputError: it is there more than once.
        """
        values = self.query.get(name, ())
        if len(values) > 1:
            raise BadInputError(f"parameter {name}: expected one value, found {len(values)}; give it once")
        return values[0] or None if values else None

    def number(self, name: str, default: int, lowest: int, highest: int) -> int:
        """The value of a parameter as a whole number.

        Raises: BadInputError: it is none, or out of range.
        """
        text = self.text(name)
        return default if text is None else _number(text, name, lowest, highest)

    def path_number(self, name: str) -> int:
        """A part of the path as a whole number. Raises: BadInputError: it is none."""
        return _number(self.path[name], name, 0, 2**53)

    @property
    def is_of_now(self) -> bool:
        """Whether its answer changes with the clock: spans such as ``2h`` end now."""
        return any(map(self.text, ("since", "until")))

    def filters(self) -> Filters:
        """The filters. Raises: BadInputError: one of them is not valid."""
        policy, reward, step = (self.text(name) for name in ("policy", "reward", "step"))
        found: dict[str, object] = {name: self.text(name) for name in (*_BY_VALUE, "since", "until")}
        found |= {
            "policy": None if policy is None else parse_range(policy, "policy"),
            "reward": None if reward is None else parse_range(reward, "reward"),
            "labels": dict(_label(text) for text in self.query.get("label", ())) or None,
            "accepted": True if self.number("accepted", 0, 0, 1) else None,
            "step": None if step is None else parse_which(step),
        }
        return cast("Filters", {name: value for name, value in found.items() if value is not None})

    def command(self, order: str, limit: int) -> str:
        """The same question for the command line."""
        words = ["agent-layer", "query"]
        for name in FILTERS:
            for value in filter(None, self.query.get(name, ())):
                if name != "accepted":
                    words += [f"--{name.replace('_', '-')}", value]
                elif value == "1":
                    words.append("--accepted")
        return shlex.join([*words, "--order", order, "--limit", str(limit)])

    def python(self, order: str, limit: int) -> str:
        """The same question in Python."""
        given = {**self.filters(), "order": order, "limit": limit}
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"from agent_layer.store import open_store\n\npage = open_store().query({arguments})\n"


def query_parameters(filters: Filters) -> Iterator[tuple[str, str]]:
    """Yield filters as parameters; there is none for attempts that were not accepted."""
    for name in (*_BY_VALUE, "since", "until"):
        if (value := filters.get(name)) is not None:
            yield name, str(value)
    for name, found in (("policy", filters.get("policy")), ("reward", filters.get("reward"))):
        if found is not None and found != (None, None):
            yield name, "..".join("" if end is None else repr(end).removesuffix(".0") for end in found)
    for label, value in (filters.get("labels") or {}).items():
        yield "label", f"{label}={value}"
    if filters.get("accepted"):
        yield "accepted", "1"
    if (step := filters.get("step")) is not None:
        yield "step", ":".join(step) if isinstance(step, tuple) else str(step)


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise BadInputError(f"label {text!r}: expected NAME=VALUE; write for example label=team=search")
    return name, value


def _number(text: str, name: str, lowest: int, highest: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(highest)) and lowest <= int(text) <= highest:
        return int(text)
    raise BadInputError(f"{name} {text[:32]!r}: expected a whole number from {lowest} to {highest}; write one")
