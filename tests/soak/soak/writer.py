"""This program writes attempts for ever: ``writer.py JOURNALS``. It is made to be killed."""

import random
import sys
import time
from itertools import count

from journal import Journal

from agent_layer.recorder import open_recorder
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.settings import load_settings


def main() -> None:
    """Write one attempt after the other, each record noted once it was acknowledged."""
    journal, recorder = Journal(sys.argv[1]), open_recorder(load_settings())
    for number in count():
        name = f"{new_id()}.0"
        own = {"trajectory_id": f"{name}-0", "run": "r"}
        began = time.time()
        recorder.append(AttemptStarted(**own, rollout_id=name, attempt=0, task_id="t", started_at=began))
        journal.note(own["trajectory_id"], "started")
        num_calls = random.randrange(1, 4)  # no secret
        for call in range(num_calls):
            part = {**own, "call_id": str(call), "source": "gateway"}
            recorder.append(StepPart(**part, phase="start", at=time.time()))
            time.sleep(0.002)
            action = Action(policy_versions=[(number % 5, 1)])
            recorder.append(StepPart(**part, phase="end", at=time.time(), status="ok", actions=[action]))
            journal.note(own["trajectory_id"], f"call-{call}")
        recorder.append(
            Reward(**own, reward_id=f"{name}/first", at=time.time(), score=0.25),
            Outcome(**own, status="completed", ended_at=time.time(), num_calls=num_calls),
        )
        journal.note(own["trajectory_id"], f"reward-{name}/first", "completed")
        recorder.append(
            Accepted(**own, rollout_id=name, accepted_at=time.time()),
            Group(group_id=name, run="r", task_id="t", closed_at=time.time(), trajectory_ids=[f"{name}-0"]),
        )
        journal.note(own["trajectory_id"], "accepted", f"group-{name}")


if __name__ == "__main__":
    main()
