"""This program follows the closed groups: ``consumer.py DIRECTORY RUN``; settings from the environment.

It notes each delivery in ``DIRECTORY/deliveries`` before it acknowledges it, and ends when ``DIRECTORY/shipped`` is
there and nothing more came for a second.
"""

import sys
from pathlib import Path

from agent_layer.store import open_store

_QUIET_SECONDS = 1.0


def main(directory: str, run: str) -> None:
    store, is_last = open_store(), False
    with (Path(directory) / "deliveries").open("a", buffering=1) as book:
        while not is_last:
            is_last = (Path(directory) / "shipped").exists()
            for delivery in store.follow("trainer", run, wait_seconds=_QUIET_SECONDS):
                members = [one.trajectory_id for one in delivery.trajectories]
                is_whole = members == delivery.group.trajectory_ids and all(
                    one.accepted for one in delivery.trajectories
                )
                book.write(f"{delivery.group.group_id} {'whole' if is_whole else 'short'}\n")
                delivery.ack()


if __name__ == "__main__":
    main(*sys.argv[1:])
