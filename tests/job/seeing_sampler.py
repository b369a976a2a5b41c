"""The sampler of the plug-ins, which also writes what veRL's workers are about to read from TransferQueue."""

import json
import os
from pathlib import Path

import transfer_queue as tq

from trainer_adapter.cluster.plug_ins import TaskSampler

FIELDS = ["prompts", "responses", "response_mask", "rollout_log_probs"]


class SeeingSampler(TaskSampler):
    def sample(self, global_steps, partition_id, batch_size):
        rows, metrics = super().sample(global_steps, partition_id, batch_size)
        stored = tq.kv_batch_get(keys=rows.keys, partition_id=partition_id, select_fields=FIELDS)
        columns = {name: [row.tolist() for row in stored[name].unbind(0)] for name in FIELDS}
        with Path(os.environ["SEEN_ROWS"]).open("a") as out:
            print(json.dumps({"step": global_steps, **columns}), file=out)
        return rows, metrics
