"""A real training run that is not healthy: it ends with the reason and a checkpoint, and goes on once it is mended."""

import pytest

from agent_layer.errors import AgentLayerError
from agent_layer.health import HealthLimits, progress_path, read_progress
from agent_layer.health.alarm_file import AlarmFile
from agent_layer.store import list_batches, open_store

from .conftest import MADE_UP, RUN, Report, acknowledged, train

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


def stopped(config, settings):
    """Train until the run stops by itself; return why, and how many steps it did."""
    with pytest.raises(AgentLayerError) as raised:
        train(config, settings)
    return str(raised.value), len(read_progress(progress_path(settings, RUN)))


@pytest.mark.parametrize(
    ("name", "fault", "num_trained"),
    [
        ("fake_zeros", {"silent": {1}}, 2),
        ("capture_gaps", {"num_counted": 2}, 2),
        ("dead_groups", {"equal": True}, 4),
        ("logprob_gap", {"logprob": -9.0}, 2),
        ("importance_tail", {"logprob": -9.0}, 3),
    ],
)
def test_a_run_with_a_fault_stops_within_five_steps(configure, settings, player, name, fault, num_trained):
    """Where the fault is known before the update, the last step is not trained."""
    for field, value in fault.items():
        setattr(player, field, value)

    others = {one: "off" for one in MADE_UP if one != name}
    why, num_steps = stopped(configure(20, health=others, success_above=1.0, max_staleness=0), settings)

    assert f"expected a healthy run, found {name} since step 1: " in why
    assert f"'health: {{{name}: off}}' in its configuration trains on regardless" in why
    assert num_steps == num_trained
    assert [one.finding.level for one in AlarmFile(settings, RUN).read().firing.values()] == ["stop"]


def test_a_stopped_run_gives_up_the_groups_and_goes_on_when_it_is_mended(configure, settings, player, redis, keys):
    def lose_one_of_three(lease):
        if len(lost) < 2:
            lost.add(lease.group_id)
        is_lost = lease.group_id in lost and lease.rollout_id.endswith(".2")
        return Report(lease=lease, ending="completed", usable=not is_lost)

    lost = set()
    player.fate = lose_one_of_three
    config = configure(3, health=MADE_UP | {"null_rewards": HealthLimits(stop=0.3)})
    why, num_steps = stopped(config, settings)

    again = train(config, settings)

    store = open_store(settings)
    trained = {one.group_id for batch in list_batches(store.redis, store.keys, RUN) for one in batch.rollouts}
    assert "null_rewards since step 1" in why
    assert "'agent-layer dead list'" in why
    assert num_steps == 0
    assert [one.step for one in again] == [1, 2, 3]
    assert lost < acknowledged(redis, keys)
    assert lost.isdisjoint(trained)


def test_a_warning_stands_in_the_report_and_stops_nothing(configure, settings, player):
    player.num_counted = 2

    reports = train(configure(4, health=MADE_UP | {"capture_gaps": HealthLimits(stop=None)}), settings)

    assert [[(one.name, one.level, one.since_step) for one in report.health] for report in reports] == [
        [],
        [],
        [("capture_gaps", "warn", 1)],
        [("capture_gaps", "warn", 1)],
    ]
    assert read_progress(progress_path(settings, RUN)) == reports
