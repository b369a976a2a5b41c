"""Background tasks of a gateway outlive what fails inside them."""

import asyncio
import errno
import logging

import pytest

from agent_layer.gateway.app import keep_running


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many open files"), ExceptionGroup("tasks", [KeyError()])])
async def test_a_background_task_that_fails_begins_again(error, caplog):
    begun, num_begun = asyncio.Event(), 0

    async def run():
        nonlocal num_begun
        num_begun += 1
        if num_begun < 3:
            raise error
        begun.set()
        await asyncio.Event().wait()

    with caplog.at_level(logging.CRITICAL):
        task = asyncio.create_task(keep_running("engine watcher", run, pause_seconds=0.0))
        await begun.wait()
    task.cancel()

    assert [one.getMessage() for one in caplog.records] == ["engine watcher failed, it begins again"] * 2
    with pytest.raises(asyncio.CancelledError):
        await task
