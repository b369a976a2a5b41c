"""The package's public names: each one intended, each one documented."""

import inspect

import pytest

from agent_layer.dispatcher import Dispatcher

CALLS = {
    *("cancel", "close", "dead", "drain", "drop_dead", "finished", "groups", "pause", "resume", "retry_dead"),
    *("begin_pause", "end_pause", "find_server_change"),
    *("serve", "rollouts", "runs", "share", "stats", "submit", "wait", "workers"),
}


def test_the_client_offers_nothing_else():
    assert {name for name, _ in inspect.getmembers(Dispatcher, callable) if not name.startswith("_")} == CALLS


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_says_what_it_does_and_its_arguments_their_unit(name):
    call = getattr(Dispatcher, name)
    answer = inspect.getdoc(call)

    assert answer
    for argument in inspect.signature(call).parameters:
        if "timeout" in argument or "seconds" in argument:
            assert "seconds" in answer
