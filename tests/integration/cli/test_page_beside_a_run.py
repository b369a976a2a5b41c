"""The page beside a run: its address is printed and announced, its process starts when opened and ends with the run."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager, suppress

import pytest

from agent_layer.local import run_page
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.view import find_page

from ...processes import is_running, list_family
from ...waiting import communicate, read_line, scaled, wait_for_exit

_RUN = """
import sys, threading
from agent_layer.local import run_page
from agent_layer.settings import load_settings
with run_page(load_settings(), lambda line: print(line, file=sys.stderr, flush=True)) as address:
    print(address, flush=True)
    sys.stdin.read()
"""
"""A run that does nothing but have a page."""


@contextmanager
def started(settings, *command, **more):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_LAYER_")}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, *command],
        env=inherited | settings.environment() | more,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        wait_for_exit(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def line_of_errors(process, pattern):
    """Return what the first line on stderr that matches names."""
    seen = []
    while line := read_line(process, log=lambda: "".join(seen), of_errors=True):
        if found := re.fullmatch(pattern, line.rstrip("\n")):
            return found[1]
        seen.append(line)
    return pytest.fail(f"no {pattern} in {seen}")


def ask(address, path="api/v1/info"):
    with urllib.request.urlopen(address + path, timeout=scaled(60)) as answer:
        return json.load(answer)


def serves(address, settings):
    """Whether our page answers there; the port may have gone to another program."""
    return (_try(ask, address) or {}).get("namespace") == settings.namespace


def find_port(address):
    return int(address.split("/")[2].rpartition(":")[2])


def test_up_prints_its_address_and_ends_the_page_with_itself(settings, wait_until):
    with (
        serve_in_thread(ScriptedEngine()) as engine,
        started(settings, "-m", "agent_layer.cli", "up", "--engine", engine.url, "--port", "0") as up,
    ):
        address = line_of_errors(up, r"view: (http://127\.0\.0\.1:\d+/)")
        wait_until(lambda: find_page(settings) == address)
        assert not (settings.dir / "logs" / "view.log").exists(), "a page that stays unopened costs a process"

        assert ask(address)["namespace"] == settings.namespace
        family = list(list_family(up.pid))
        up.send_signal(signal.SIGINT)
        assert wait_for_exit(up) == 0

    assert find_page(settings) is None
    assert not serves(address, settings)
    wait_until(lambda: not any(is_running(pid) for pid in family))


def test_a_page_that_is_killed_comes_again_and_ends_with_a_run_that_is_killed(settings, wait_until):
    with started(settings, "-c", _RUN) as run:
        address = read_line(run).strip()
        assert ask(address)["namespace"] == settings.namespace
        page = list(list_family(run.pid))
        for pid in page:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(is_running(pid) for pid in page))

        assert wait_until(lambda: _try(ask, address))["namespace"] == settings.namespace
        page = list(list_family(run.pid))
        run.kill()
        wait_for_exit(run)

        wait_until(lambda: not any(is_running(pid) for pid in page))
    assert not serves(address, settings)


def _try(call, *arguments):
    with suppress(OSError, ValueError):
        return call(*arguments)
    return None


def test_a_page_that_cannot_start_is_reported_once_and_ends_nothing(settings):
    broken = {"AGENT_LAYER_READER_REDIS_URL": "redis://127.0.0.1:1/#no"}
    with started(settings, "-c", _RUN, **broken) as run:
        address = read_line(run).strip()
        assert _try(ask, address) is None
        errors = read_line(run, of_errors=True)
        assert not serves(address, settings)
        assert run.poll() is None
        _, rest = communicate(run)
        assert run.returncode == 0

    assert re.match(rf"no page at {address}: its process ended 2 times, see .*view\.log: .*expected no '#'", errors)
    assert "no page" not in rest


def test_a_port_that_is_taken_is_left_alone(settings):
    other = settings.model_copy(update={"namespace": f"{settings.namespace}-other"})
    with run_page(settings, pytest.fail) as first, run_page(other, pytest.fail) as second:
        assert find_port(second) != find_port(first)


def test_a_page_that_serves_already_is_used(settings, wait_until):
    with run_page(settings, pytest.fail) as first:
        wait_until(lambda: find_page(settings) == first)
        with run_page(settings, pytest.fail) as second:
            assert second == first
        elsewhere = settings.model_copy(update={"view_url": "https://runs.example/page?token=secret"})
        with run_page(elsewhere, pytest.fail) as third:
            assert third == "https://runs.example/page/"
    assert find_page(settings) is None


def test_an_address_of_another_machine_counts_only_if_it_is_reachable(settings, redis, keys):
    seconds, _ = redis.time()
    redis.zadd(keys.pages, {"elsewhere http://127.0.0.1:9/": seconds})
    assert find_page(settings) is None
    redis.zadd(keys.pages, {"elsewhere https://page.example:8792/": seconds})
    assert find_page(settings) == "https://page.example:8792/"
    redis.zadd(keys.pages, {"elsewhere https://page.example:8792/": seconds - 60})
    assert find_page(settings) is None
