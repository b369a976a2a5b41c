"""When a worker that died is followed by another."""

from agent_layer.infra.processes.restart import Deaths


def died(*lives):
    deaths = Deaths()
    for was_seen, lived_seconds in lives:
        deaths.note(was_seen=was_seen, lived_seconds=lived_seconds)
    return deaths


def test_the_first_worker_starts_at_once():
    assert Deaths().delay_seconds == 0.0


def test_who_dies_young_is_waited_for_longer_each_time_up_to_a_bound():
    delays = [died(*[(True, 1.0)] * num).delay_seconds for num in (1, 2, 3, 100)]

    assert delays == [0.5, 1.0, 2.0, 30.0]


def test_a_long_life_is_no_reason_to_wait():
    assert died((True, 1.0), (True, 1.0), (True, 600.0)).delay_seconds == 0.0


def test_five_deaths_in_a_row_before_a_heartbeat_are_hopeless():
    assert not died(*[(False, 1.0)] * 4).is_hopeless
    assert died(*[(False, 1.0)] * 5).is_hopeless
    assert not died(*[(False, 1.0)] * 4, (True, 1.0), (False, 1.0)).is_hopeless


def test_who_runs_and_dies_is_always_followed():
    assert not died(*[(True, 1.0)] * 50).is_hopeless
