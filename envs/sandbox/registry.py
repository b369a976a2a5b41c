"""Kinds by name: ours, and those that installed packages register under ``agent_layer.sandboxes``."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema.sandbox import ISOLATIONS, SandboxSpec
from envs.plug_ins import PlugIns
from envs.sandbox.kind import SandboxKind
from envs.sandbox.spec import image_form

_OURS: Final = {
    "process": "envs.sandbox.kinds.process:ProcessKind",
    "namespace": "envs.sandbox.kinds.namespace:NamespaceKind",
    "session": "envs.sandbox.kinds.session:SessionKind",
    "oci": "envs.sandbox.kinds.oci:OciKind",
    "docker": "envs.sandbox.kinds.docker:DockerKind",
}
_KINDS: Final = PlugIns("agent_layer.sandboxes", "sandbox: kind", _OURS)

list_kind_names: Final = _KINDS.list_names


def make_kind(name: str) -> SandboxKind:
    """Make a kind.

    Raises: BadInputError: no kind has this name.
    """
    return cast("Callable[[], SandboxKind]", _KINDS.find(name))()


async def choose_kind(spec: SandboxSpec, kinds: Iterable[SandboxKind]) -> SandboxKind:
    """Return the kind that a spec names, or else the cheapest one that works here, isolates well enough
    and has its image.

    Raises: SandboxError: it, or each of them, does not work on this machine.
    """
    candidates = sorted(_candidates(spec, kinds), key=lambda kind: (ISOLATIONS.index(kind.isolation), kind.cost))
    if not candidates:
        raise BadInputError(
            f"sandbox: no kind isolates as {spec.isolation!r} does and has the image {spec.image!r}; ask for less, or"
            " install one"
        )
    reasons: list[str] = []
    for kind in candidates:
        support = await kind.probe()
        if support.works:
            return kind
        reasons.append(f"{kind.name}: {support.reason}")
    raise SandboxError(f"sandbox: none works on this machine: {'; '.join(reasons)}")


def _candidates(spec: SandboxSpec, kinds: Iterable[SandboxKind]) -> Iterator[SandboxKind]:
    weakest, form = ISOLATIONS.index(spec.isolation), image_form(spec)
    for kind in kinds:
        is_fit = ISOLATIONS.index(kind.isolation) >= weakest and (form == "host" or form in kind.images)
        if kind.name == spec.kind or (spec.kind is None and is_fit):
            yield kind
