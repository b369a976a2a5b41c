"""Our gateway passes the conformance kit, which asks any endpoint the same."""

import json
import urllib.request

import pytest

from agent_layer.conformance import Door, list_rows, read_shown_step, run_checks
from agent_layer.conformance.engine import KitEngine
from agent_layer.store import show_step

from ...waiting import scaled
from .conftest import OPERATOR


class MemoryAdapter:
    """Opens a rollout for each check, and reads its steps from the gateway's log."""

    def __init__(self, gateway):
        self.gateway, self.opened = gateway, []

    def open_door(self, check):
        headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}
        body = json.dumps({"task_id": check}).encode()
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.gateway.url}/rollouts", body, headers), timeout=scaled(60.0)
        ) as reply:
            self.opened.append(json.load(reply))
        return Door(self.opened[-1]["base_url"], self.opened[-1]["api_key"])

    def read_records(self):
        trajectories = [self.gateway.log.trajectory(one["trajectory_id"]) for one in self.opened]
        return [
            read_shown_step(show_step(trajectory, step)) for trajectory in trajectories for step in trajectory.steps
        ]


@pytest.fixture
def kit():
    return KitEngine("policy")


@pytest.fixture
def engine(kit):
    return kit.engine


async def test_the_gateway_keeps_every_promise_of_the_kit(gateway, kit):
    results = await run_checks(kit, MemoryAdapter(gateway), list_rows(), model="policy")

    assert [one for one in results if one.result == "fail"] == []
    assert {what for one in results for what in one.not_claimed} == set()
    assert len(results) > 150
