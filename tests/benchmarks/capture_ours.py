"""Our own ways to capture a call, for the benchmark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import openai
from capture_child import Ask, Capturing, asking

import tracer
from agent_layer.recorder.log import open_recorder
from agent_layer.settings import load_settings
from tracer.core.rollout_handle import Rollout


def ours(directory: Path, client: openai.OpenAI) -> Capturing:
    """The tracer without a gateway: it records the whole call itself."""
    tracer.init(load_settings(dir=directory))

    @contextmanager
    def capturing() -> Iterator[Ask]:
        with tracer.rollout(task="t"):
            yield asking(client)

    return capturing


def ours_routed(directory: Path, client: openai.OpenAI) -> Capturing:
    """The tracer before a gateway: the tracer identifies the caller, the gateway records the call."""
    tracer.init(settings := load_settings(dir=directory))
    new_rollout = partial(
        Rollout,
        rollout_id="r",
        attempt=0,
        run="bench",
        sink=open_recorder(settings),
        base_url="http://r/v1",
        api_key="k",
    )
    numbers = count()

    @contextmanager
    def capturing() -> Iterator[Ask]:
        with tracer.enter_rollout(new_rollout(trajectory_id=f"r{next(numbers)}-0")):
            yield asking(client)

    return capturing


VARIANTS: dict[str, Callable[[Path, openai.OpenAI], Capturing]] = {"ours": ours, "ours_routed": ours_routed}
