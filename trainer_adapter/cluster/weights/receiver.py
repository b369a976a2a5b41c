"""What veRL's trainer calls inside a vLLM worker on a CPU, where weights are packed after loading.

veRL loads each bucket into the packed weights, which fails; vLLM's own reload unpacks, loads and packs. An adapter is
beside them, and loaded as veRL does it.
"""

import torch
from torch import Tensor
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, vLLMColocateWorkerExtension
from vllm.model_executor.models.utils import WeightsMapper

from trainer_adapter.cluster.weights.digest import hash_weights

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL and vLLM carry no types.

if not hasattr(WeightsMapper, "get_unstacked_mapper"):  # as veRL's loader of adapters calls what vLLM has renamed
    WeightsMapper.get_unstacked_mapper = WeightsMapper.get_rename_mapper  # pyright: ignore[reportAttributeAccessIssue]


class WeightReceiver(vLLMColocateWorkerExtension):
    """vLLM adds it to its worker."""

    _loaded_hash: str | None = None

    def loaded_hash(self) -> str | None:
        """Return the hash of the weights that were loaded last, as they arrived; None: none yet."""
        return self._loaded_hash

    def update_weights_from_ipc(
        self,
        peft_config: object = None,
        base_sync_done: bool = False,  # noqa: FBT001, FBT002  # veRL's signature
        use_shm: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Receive all buckets, then load them: an adapter where there is a configuration of one, else whole weights."""
        received: list[tuple[str, Tensor]] = []

        def keep(weights: list[tuple[str, Tensor]], is_last: bool) -> None:  # noqa: FBT001  # veRL's signature
            del is_last
            received.extend((name, tensor.clone()) for name, tensor in weights)  # the buffer is used again

        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )
        receiver.receive_weights(on_bucket_received=keep)
        self._loaded_hash = None
        if peft_config and base_sync_done:
            self.remove_lora(VLLM_LORA_INT_ID)  # pyright: ignore[reportAttributeAccessIssue]  # of vLLM's worker
            self._update_weights(received, peft_config, base_sync_done)  # pyright: ignore[reportArgumentType]
        else:
            self.reload_weights(weights_iterator=iter(received))  # pyright: ignore[reportAttributeAccessIssue]
        self._loaded_hash = hash_weights(received)
