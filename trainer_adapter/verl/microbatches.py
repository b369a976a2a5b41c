"""veRL's micro-batches, with rows of similar lengths where rows are padded.

veRL balances micro-batches by the cost of attention, so that each has long and short rows. That suits attention over
packed rows (flash attention). Where each micro-batch is padded to its longest row, it computes almost the dense batch,
and exceeds the limit of tokens twofold.
"""

from collections.abc import Callable
from typing import cast

import torch.distributed
from tensordict import TensorDict
from torch.distributed import ProcessGroup
from verl.utils import tensordict_utils as tu

from trainer_adapter.data import split_by_length

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL and tensordict carry no types.


def prepare_micro_batches(
    data: TensorDict, dp_group: ProcessGroup | None = None, **options: bool
) -> tuple[list[TensorDict], list[list[int]]]:
    """Return micro-batches and the rows of each, as veRL's function of this name does.

    Several processes must have equally many micro-batches: there veRL's own split is used.
    """
    from verl.workers.engine import utils  # noqa: PLC0415  # asks for the platform when it is imported

    is_packed = tu.get_non_tensor_data(data, "use_remove_padding", default=True)
    if is_packed or torch.distributed.get_world_size(dp_group) > 1:
        prepare = cast("Callable[..., tuple[list[TensorDict], list[list[int]]]]", utils.prepare_micro_batches)
        return prepare(data, dp_group=dp_group, **options)
    lengths = data["input_ids"].offsets().diff().tolist()  # pyright: ignore[reportAttributeAccessIssue]  # of jagged tensors
    rows = split_by_length(lengths, int(data["max_token_len_per_gpu"]))
    return [tu.index_select_tensor_dict(data, part) for part in rows], rows
