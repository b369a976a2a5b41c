"""Program that rewards stored trajectories, again and again, until it is killed: ``rewarder.py JOURNALS``."""

import random
import sys
import time

from journal import Journal

from agent_layer.settings import load_settings
from agent_layer.store import open_store


def main() -> None:
    """Append a judgement to one of the newest, and note it once it was acknowledged."""
    journal, store = Journal(sys.argv[1]), open_store(load_settings())
    while True:
        rows = store.query(limit=20).items
        if rows:
            row = random.choice(rows)  # no secret
            reward = store.reward(row.trajectory_id, 0.75, name="late")
            journal.note(row.trajectory_id, f"reward-{reward.reward_id}")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
