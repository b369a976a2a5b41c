"""Kinds by name: ours, and those that installed packages register under ``agent_layer.sandboxes``."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from agent_layer.errors import BadInputError, SandboxError
from envs.sandbox.sandbox import SandboxKind
from envs.sandbox.spec import ISOLATIONS, SandboxSpec

_OURS: Final = {
    "process": "envs.sandbox.kinds.process:ProcessKind",
    "namespace": "envs.sandbox.kinds.namespace:NamespaceKind",
}
_GROUP: Final = "agent_layer.sandboxes"


def list_kind_names() -> list[str]:
    """Return the names of all kinds, ours first."""
    return [*_OURS, *sorted(set(entry_points(group=_GROUP).names) - set(_OURS))]


def make_kind(name: str) -> SandboxKind:
    """Make a kind.

    Raises: BadInputError: no kind has this name.
    """
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        return cast("SandboxKind", getattr(import_module(module), attribute)())
    known = entry_points(group=_GROUP)
    if name not in known.names:
        raise BadInputError(
            f"sandbox: expected a kind among {', '.join(list_kind_names())}, found {name!r}; check the spelling"
        )
    return cast("SandboxKind", known[name].load()())


async def choose_kind(spec: SandboxSpec, kinds: Iterable[SandboxKind]) -> SandboxKind:
    """Return the kind that a spec names, or else the cheapest one that works here and isolates well enough.

    Raises: SandboxError: it, or each of them, does not work on this machine.
    """
    candidates = sorted(_candidates(spec, kinds), key=lambda kind: (ISOLATIONS.index(kind.isolation), kind.cost))
    if not candidates:
        raise BadInputError(f"sandbox: no kind isolates as {spec.isolation!r} does; ask for less, or install one")
    reasons: list[str] = []
    for kind in candidates:
        support = await kind.probe()
        if support.works:
            return kind
        reasons.append(f"{kind.name}: {support.reason}")
    raise SandboxError(f"sandbox: none works on this machine: {'; '.join(reasons)}")


def _candidates(spec: SandboxSpec, kinds: Iterable[SandboxKind]) -> Iterator[SandboxKind]:
    weakest = ISOLATIONS.index(spec.isolation)
    for kind in kinds:
        if kind.name == spec.kind or (spec.kind is None and ISOLATIONS.index(kind.isolation) >= weakest):
            yield kind
