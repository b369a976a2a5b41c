"""A request to a dead host process always gets an answer."""

import pytest

from envs.hosts.host_client import Host, HostDiedError
from envs.hosts.protocol import Check


async def test_who_asks_a_process_that_has_just_died_hears_so():
    host = Host("scorers", lambda: None)
    host.mark_dead("it was killed by SIGKILL")

    answer = host.ask(Check(token="1", scorer="m:score"))

    with pytest.raises(HostDiedError, match="scorers: it was killed by SIGKILL"):
        await answer
    assert host.num_pending == 0
