"""This file holds how a worker's processes of users' code are put together: what each of them knows, and what not."""

import sys
from pathlib import Path

from agent_layer.environment import agent_environment, program_environment
from agent_layer.settings import Settings
from envs.host.beginning import agent_values
from envs.host.forked import ForkedHosts
from envs.host.launching import Launcher
from envs.host.messages import Begin
from envs.host.shared import SharedHost
from envs.host.target import Hosts

__all__ = ["make_hosts", "make_scorers"]


def make_hosts(settings: Settings, agent: str, *, is_isolated: bool) -> Hosts:
    """Give what runs the agent of this name. It knows no address of a server but its rollouts', and no other key."""
    name = f"agent {agent!r}"
    begin = Begin(target=agent, path=_path(), settings=agent_values(settings))
    kind = "zygote" if is_isolated else "agents"
    launcher = Launcher(name, kind, agent_environment(), begin, settings.start_seconds)
    return ForkedHosts(name, launcher) if is_isolated else SharedHost(name, launcher)


def make_scorers(settings: Settings) -> SharedHost:
    """Give a process of scorers. It reads the store, so it knows all that the worker does."""
    variables = program_environment() | settings.environment()
    begin = Begin(path=_path(), settings={})
    return SharedHost("scorers", Launcher("scorers", "scorers", variables, begin, settings.start_seconds))


def _path() -> list[str]:
    """Where the worker finds modules, and before that the folder in which it was started."""
    return [str(Path.cwd()), *sys.path]
