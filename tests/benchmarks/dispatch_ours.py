"""Our queue as a contender: a worker that claims and settles, and a submitter.

``dispatch_ours.py work BATCH`` or ``dispatch_ours.py submit``. Tasks are those of groups of 8; a settled attempt is in
the outbox, so that its acceptance outlives Redis. Submitted tasks that are timed are groups of one.
"""

import os
import sys
import time
from pathlib import Path

from dispatch_orders import serve_orders
from dispatch_tally import Tally

from agent_layer.dispatcher import Dispatcher, Report, WorkerQueue
from agent_layer.infra import Keys, open_redis
from agent_layer.schema.ids import new_id
from agent_layer.schema.task import Task
from agent_layer.settings import load_settings

GROUP_SIZE = 8
RUN = "bench"


def work(queue: WorkerQueue, batch: int, tally: Tally) -> None:
    """Claim ``batch`` tasks at once and settle them at once, until the process ends."""
    worker = f"w-{os.getpid()}"
    while True:
        leases = queue.claim(worker, batch, run=RUN, wait_seconds=30.0)
        now = time.monotonic()
        for lease in leases:
            if lease.task.input:
                tally.note_wait(now - float(str(lease.task.input)))
        if refused := [one for one in queue.settle([Report(lease=one, ending="completed") for one in leases]) if one]:
            raise refused[0]
        tally.count(len(leases))


def _submit(dispatcher: Dispatcher, num: int, group_size: int = GROUP_SIZE, sent_at: float = 0.0) -> None:
    first, whole = new_id(), num // group_size
    dispatcher.submit(
        [Task(id=f"{first}-{one}", run=RUN, group_size=group_size, input=sent_at) for one in range(whole)]
    )


def main(arguments: list[str]) -> None:
    """Work or submit."""
    settings = load_settings()
    redis = open_redis(settings)
    queue, dispatcher = WorkerQueue(redis, Keys(settings.namespace), settings), Dispatcher(redis, settings)
    if arguments[0] == "work":
        work(queue, int(arguments[1]), Tally(Path(os.environ["BENCH_TALLY"])))
    else:
        serve_orders(lambda num: _submit(dispatcher, num), lambda: _submit(dispatcher, 1, 1, time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1:])
