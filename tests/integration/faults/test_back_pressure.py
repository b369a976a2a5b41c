"""A full disk or quota makes writers wait, then is an error; it loses nothing that was begun, and stops no gateway."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from agent_layer.errors import BackPressureError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.local.stack import run_stack
from agent_layer.recorder import Recorder
from agent_layer.schema.step import Content
from agent_layer.store.store import open_store

from ...waiting import join, scaled

ROOT = Path(__file__).parents[3]


def content(text: str) -> Content:
    return Content(trajectory_id="r.0-0", hash=text, body=b"1")


def with_quota(settings, num_bytes, **more):
    return settings.model_copy(update={"log_quota_bytes": num_bytes, "log_wait_seconds": 0.3, **more})


def test_a_writer_waits_for_the_shipper_and_then_goes_on(settings, ship_here):
    recorder = Recorder(with_quota(settings, 300, log_wait_seconds=scaled(60.0)))
    recorder.append(content("x" * 300))
    recorder.close()
    shipping = threading.Timer(0.3, ship_here)
    shipping.start()

    recorder.append(content("b"))
    join(shipping)

    assert recorder.has_room()
    recorder.close()


def test_a_writer_that_must_not_wait_ends_what_it_began_beyond_the_quota(settings):
    recorder = Recorder(with_quota(settings, 100, log_wait_seconds=1.0), waits=False)
    recorder.append(content("x" * 200))

    recorder.append(content("b"))

    assert not recorder.has_room()
    recorder.close()


def test_what_the_shipper_says_uses_up_no_quota(settings):
    recorder = Recorder(with_quota(settings, 1000))
    (settings.log_dir / "shipper.log").write_text("shipping failed\n" * 1000)

    recorder.append(content("a"))

    assert recorder.has_room()
    recorder.close()


def test_a_disk_that_takes_no_more_bytes_is_an_error_and_what_was_recorded_before_stays(settings, ship_here):
    settings = settings.model_copy(update={"log_roll_seconds": 60.0})  # one log, however long this takes
    script = """
import resource
from agent_layer.errors import BackPressureError
from agent_layer.recorder import Recorder
from agent_layer.schema.step import Content
from agent_layer.settings import load_settings
recorder = Recorder(load_settings())
def put(name, size): recorder.append(Content(trajectory_id="r.0-0", hash=name, body=b"1" * size))
put("a", 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    put("b", 5000)
except BackPressureError as error:
    print("refused" if "make room on the disk" in str(error) else error)
put("c", 100)
recorder.close()
"""
    environment = os.environ | settings.environment()
    output = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert output.stdout.split() == ["refused"]
    assert ship_here() == 1
    (log,) = {path.suffix for path in settings.log_dir.iterdir()} & {".corrupt", ".open", ".log"} or {None}
    assert log is None


def test_a_disk_that_takes_no_further_file_is_an_error_in_one_sentence(settings):
    recorder = Recorder(settings)
    settings.log_dir.rename(settings.log_dir.with_name("moved"))

    with pytest.raises(BackPressureError, match="make room on the disk or move AGENT_LAYER_DIR"):
        recorder.append(content("a"))


def test_a_gateway_whose_log_is_full_lives_ends_what_runs_and_refuses_the_rest(settings, make_client, wait_until):
    settings = with_quota(settings, 40_000, log_wait_seconds=0.5, seal_seconds=20.0)
    (settings.dir / "objects").parent.mkdir(parents=True)
    (settings.dir / "objects").write_text("in the way")  # nothing can be shipped
    is_over = threading.Event()
    slow_engine = ScriptedEngine(
        script=lambda prompt: words_until(is_over) if prompt.text == "slow" else "ok", token_seconds=0.01
    )
    with serve_in_thread(slow_engine) as engine, run_stack(settings, engine.url) as stack:
        client, texts = make_client(stack), []
        opened = client.open()
        slow = threading.Thread(target=lambda: texts.append(read_text(client.ask(opened, "slow", seconds=100))))
        slow.start()
        wait_until(lambda: engine.num_running == 1)
        refused = ask_until_refused(client, opened)
        assert slow.is_alive()
        with urlopen(f"{client.gateway}/health", timeout=scaled(30)) as reply:
            assert json.load(reply)["status"] == "ok"
        with pytest.raises(HTTPError) as not_opened:
            client.open()
        is_over.set()
        join(slow)

        (settings.dir / "objects").unlink()
        wait_until(lambda: is_answered(client, opened))
        ended = client.end(opened, reward=1.0)

    assert "nothing could be shipped" in refused["error"]["message"]
    assert not_opened.value.code == 503
    assert texts[0].endswith(" the end")
    trajectory = open_store(settings).get(opened["trajectory_id"])
    assert ended["accepted"]
    assert len(trajectory.steps) == len(engine.calls) - 1  # the first call came with the engine's registration
    assert {step.status for step in trajectory.steps} == {"ok"}


def read_text(answer) -> str:
    return answer["choices"][0]["message"]["content"]


def words_until(is_over):
    while not is_over.is_set():
        yield "ok"
    yield "the end"


def is_answered(client, opened) -> bool:
    try:
        return bool(client.ask(opened, "again"))
    except HTTPError:
        return False


def ask_until_refused(client, opened):
    with pytest.raises(HTTPError, match="503") as refused:
        ask_often(client, opened)
    return json.load(refused.value)


def ask_often(client, opened):
    for number in range(200):
        client.ask(opened, f"{number} " + "word " * 200)
