"""Read batches with prime-rl's own receiver, by an interpreter that has it: ``prime_rl_read.py OUTPUT_DIR NUM_RANKS``.

It writes, for each rank, its micro-batches as prime-rl's trainer gets them.
"""

import json
import sys
from pathlib import Path

from prime_rl.transports.rollouts.filesystem import FileSystemMicroBatchReceiver


def main(output_dir: Path, num_ranks: int) -> None:
    ranks = []
    for rank in range(num_ranks):
        receiver = FileSystemMicroBatchReceiver(output_dir, rank, current_step=1)
        receiver.wait()
        ranks.append([{name: getattr(one, name) for name in one.__struct_fields__} for one in receiver.receive()])
    json.dump(ranks, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
