"""Registration of policy versions: known once, and never only in Redis."""

import pytest

from agent_layer.engines.policies import list_policies, register_policy
from agent_layer.errors import BackPressureError
from agent_layer.schema.training import PolicyVersion


def version(number, location="weights"):
    return PolicyVersion(run="r", number=number, location=location, created_at=1.0)


def test_a_version_is_logged_and_known_once(redis, keys):
    logged = []

    for policy in (version(0), version(1), version(0, "others")):
        register_policy(redis, keys, policy, logged.append)

    assert list_policies(redis, keys, "r") == logged == [version(0), version(1)]


def test_a_version_that_no_log_takes_is_not_known(redis, keys):
    def refuse(_):
        raise BackPressureError("full")

    with pytest.raises(BackPressureError):
        register_policy(redis, keys, version(0), refuse)

    assert list_policies(redis, keys, "r") == []
