"""Process that receives veRL's buckets, as a collocated engine does: ``python receiver.py HANDLE DEVICE``.

Prints the hash of all tensors.
"""

import sys

import torch
from buckets import WeightsHash, load_transfer

from trainer_adapter.verl.platform import enter_platform

if __name__ == "__main__":
    handle, name = sys.argv[1:]
    enter_platform()
    received = WeightsHash()
    device = torch.device(name, 0) if name == "cuda" else torch.device(name)
    receiver = load_transfer().BucketedWeightReceiver(handle, device, use_shm=name == "cpu")
    receiver.receive_weights(lambda weights, _: received.add(weights))
    print(received.value)  # noqa: T201
