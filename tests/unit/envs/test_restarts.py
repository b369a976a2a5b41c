"""Back-off and restarts of processes."""

import pytest

from agent_layer.infra.backoff import Backoff
from agent_layer.infra.processes.restart import RestartHistory, RestartPolicy

POLICY = RestartPolicy(healthy_seconds=60.0, backoff=Backoff(0.5, 30.0), max_unready=5)


def ended(*lives, policy=POLICY):
    history = RestartHistory(policy)
    for was_ready, lived_seconds in lives:
        history.record_exit(lived_seconds, was_ready=was_ready)
    return history


def test_the_first_process_starts_at_once():
    assert RestartHistory(POLICY).delay_seconds == 0.0


def test_short_lives_double_the_delay_up_to_a_bound():
    delays = [ended(*[(True, 1.0)] * num).delay_seconds for num in (1, 2, 3, 100)]

    assert delays == [0.5, 1.0, 2.0, 30.0]


def test_a_healthy_life_resets_the_delay():
    assert ended((True, 1.0), (True, 1.0), (True, 600.0)).delay_seconds == 0.0


def test_a_long_life_that_was_never_ready_does_not_reset_the_delay():
    assert ended((False, 600.0)).delay_seconds == 0.5


def test_five_exits_in_a_row_before_ready_end_the_restarts():
    assert not ended(*[(False, 1.0)] * 4).must_give_up
    assert ended(*[(False, 1.0)] * 5).must_give_up
    assert not ended(*[(False, 1.0)] * 4, (True, 1.0), (False, 1.0)).must_give_up


def test_a_process_that_was_ready_is_always_restarted_without_a_limit():
    assert not ended(*[(True, 1.0)] * 50).must_give_up


def test_short_lives_in_a_row_end_the_restarts_where_they_are_limited():
    policy = RestartPolicy(healthy_seconds=5.0, max_short=2)

    assert not ended((True, 1.0), (True, 6.0), (True, 1.0), policy=policy).must_give_up
    assert ended((True, 1.0), (True, 1.0), policy=policy).must_give_up
    assert ended((True, 1.0), policy=policy).delay_seconds == 0.0


def test_retries_end_with_their_time_limit():
    assert list(Backoff(0.05, 1.0).delays(0.0)) == []


def test_retries_wait_for_half_to_all_of_the_delay():
    delays = Backoff(1.0, 4.0).delays(1e6)

    for expected in (1.0, 2.0, 4.0, 4.0):
        assert expected / 2 <= next(delays) <= expected


@pytest.mark.parametrize("num_failures", [1, 20, 10_000])
def test_many_failures_do_not_exceed_the_longest_delay(num_failures):
    assert Backoff(0.1, 5.0).delay_seconds(num_failures) <= 5.0
