"""Losses, advantages and credits by name: ours, those of installed packages, and ``module:attribute``.

Their contracts, a page each, are in ``docs/how-to/own-parts.md``; ``trainer_adapter.testing`` holds a part to them.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent_layer.errors import BadInputError
from envs import PlugIns

_PAPERS: Final = "trainer_adapter.losses.papers"
VERL_LOSSES: Final = ("clip_cov", "dppo_kl", "dppo_tv", "dro", "kl_cov")
"""veRL's losses that have no counterpart here, by its names."""
LOSSES: Final = PlugIns(
    "agent_layer.losses",
    "algorithm.loss",
    {
        "vanilla": f"{_PAPERS}:clipped_ratio",
        "gspo": f"{_PAPERS}:sequence_ratio",
        "sapo": f"{_PAPERS}:soft_gate",
        "cispo": f"{_PAPERS}:clipped_weight",
        "geo_mean": f"{_PAPERS}:geometric_mean",
        "reinforce": f"{_PAPERS}:plain_logprob",
        **{name: f"trainer_adapter.losses.verl_losses:{name}" for name in VERL_LOSSES},
    },
    takes_paths=True,
)
ADVANTAGES: Final = PlugIns("agent_layer.advantages", "algorithm.advantage", takes_paths=True)
CREDITS: Final = PlugIns(
    "agent_layer.credits", "algorithm.credit", dict.fromkeys(("rollout", "turn", "agent"), object()), takes_paths=True
)


def find_part(kind: PlugIns, name: str, options: Mapping[str, object], num_arguments: int = 1) -> Callable[..., object]:
    """Return the part of this name.

    Args:
        kind: of the part.
        name: ours, a registered one, or ``module:attribute`` of a module that is installed, or in this directory.
        options: that the part will get as keyword arguments.
        num_arguments: that it gets by position.

    Raises: BadInputError: there is none, it cannot be called, or it does not take these options.
    """
    if (here := str(Path.cwd())) not in sys.path:  # behind everything else, so that it hides nothing
        sys.path.append(here)
    found = kind.find(name)
    if not callable(found):
        raise BadInputError(f"{kind.what} {name!r}: expected a function, found a {type(found).__name__}; name another")
    try:
        signature = inspect.signature(found)
    except ValueError as error:  # of some functions in C
        raise BadInputError(f"{kind.what} {name!r}: {error}; name a function of yours that calls it") from error
    try:
        signature.bind(*[None] * num_arguments, **options)
    except TypeError as error:
        keywords = [one for one in list(signature.parameters.values())[num_arguments:] if one.kind != one.VAR_KEYWORD]
        known = ", ".join(str(one) for one in keywords) or "none"
        raise BadInputError(f"{kind.what} {name!r}: {error}; its options are: {known}") from error
    return found
