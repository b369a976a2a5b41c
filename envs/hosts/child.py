"""This file holds how a process of users' code begins: it is told where modules lie and how to record, and loads."""

import resource
import sys
from contextlib import suppress
from dataclasses import dataclass

import tracer
from agent_layer.errors import BadInputError
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.settings import Settings, load_settings
from envs.host.messages import Begin, Ready
from envs.resuming.declaring import is_resumable
from envs.targets import Target, load_target
from envs.versions import environment_named

__all__ = ["Agent", "agent_values", "load_agent", "raise_file_limit"]

_FOR_AGENTS = frozenset(
    {
        *("namespace", "run", "redact", "log_roll_seconds", "log_roll_bytes", "log_sync_seconds", "log_quota_bytes"),
        *("log_wait_seconds", "blob_bytes", "media_blob_bytes", "flush_seconds", "close_seconds", "seal_seconds"),
    }
)
_MOST_FILES = 65_536
_LONGEST_ERROR = 4000


def agent_values(settings: Settings) -> dict[str, object]:
    """Give those settings that a process with agents in it may know: how it records, and no address or key."""
    values: dict[str, object] = settings.model_dump(
        mode="json", include=set(_FOR_AGENTS), exclude_unset=True, exclude_none=True
    )
    return values | {"dir": str(settings.dir.absolute())}


@dataclass(frozen=True, kw_only=True)
class Agent:
    """What a process needs to run the agent."""

    target: Target
    settings: Settings
    recorder: Recorder


def load_agent(begin: Begin) -> tuple[Ready, Agent | None]:
    """Begin to record, then load the target: it may have its clients built, or tracing begun, when it is imported."""
    sys.path[:] = begin.path
    settings = load_settings(**begin.settings)
    recorder = open_recorder(settings, ships=False)
    tracer.init(settings)
    try:
        target = load_target(begin.target)
        env, env_version = environment_named(begin.target)
    except BadInputError as error:
        return Ready(error=str(error)[:_LONGEST_ERROR]), None
    ready = Ready(env=env, env_version=env_version, is_resumable=is_resumable(target))
    return ready, Agent(target=target, settings=settings, recorder=recorder)


def raise_file_limit() -> None:
    """Let this process have as many connections as it may: one host holds thousands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
