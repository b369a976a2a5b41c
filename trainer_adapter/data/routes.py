"""Routes of a row's tokens through a mixture of experts, joined from what the engine returned for each call.

An array of a call covers its prompt and all but the last of its sampled tokens. A token keeps the route by which it was
first computed: a later call sees it again as a part of its prompt, perhaps under other weights.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from agent_layer.schema import Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NAME = "routed_experts"


def join_routes(path: Sequence[Step], num_tokens: int) -> bytes | None:
    """Return [num_tokens, num_layers, num_experts_per_token] of int16, the bytes of a .npy file; None: not known.

    Args:
        path: steps of the row, root first.
        num_tokens: of the row, prompt included. Those that no call computed, such as the last, have zeros.
    """
    if not all(_NAME in step.action.arrays for step in path):
        return None
    import numpy as np  # noqa: PLC0415  # it comes with torch

    found: NDArray[np.int16] | None = None
    for step in path:
        routes = _load(step.action.arrays[_NAME]).astype(np.int16)
        end = len(step.prompt_token_ids or ()) + len(step.action.response_token_ids or ()) - 1
        begin, known = end - len(routes), 0 if found is None else len(found)
        if routes.ndim != 3 or begin > known or begin < 0:  # tokens, layers, experts
            return None
        rest = routes[known - begin :]
        if found is not None and found.shape[1:] != rest.shape[1:]:
            return None
        found = rest if found is None else np.concatenate([found, rest])
    return None if found is None else _save(_fit(found, num_tokens))


def cut_routes(routes: bytes | None, num_tokens: int) -> bytes | None:
    """Return the routes of the first tokens of a row."""
    return None if routes is None else _save(_fit(_load(routes), num_tokens))


def _fit(routes: "NDArray[np.int16]", num_tokens: int) -> "NDArray[np.int16]":
    import numpy as np  # noqa: PLC0415

    kept = routes[:num_tokens]
    return np.concatenate([kept, np.zeros((num_tokens - len(kept), *routes.shape[1:]), dtype=np.int16)])


def _load(content: bytes) -> "NDArray[np.int16]":
    import numpy as np  # noqa: PLC0415

    return np.load(BytesIO(content), allow_pickle=False)


def _save(routes: "NDArray[np.int16]") -> bytes:
    import numpy as np  # noqa: PLC0415

    content = BytesIO()
    np.save(content, routes, allow_pickle=False)
    return content.getvalue()
