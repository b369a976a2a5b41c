"""Messages through Apprise to a real HTTP receiver: once per firing, once per clearing, and never in a run's way."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent_layer.errors import BadInputError
from agent_layer.health import (
    HealthReader,
    append_progress,
    find_unhealthy,
    open_notifier,
    open_senders,
    progress_path,
    watch_runs,
)
from agent_layer.health.alarm_file import AlarmFile
from agent_layer.schema import Task
from agent_layer.settings import Settings

from ...queues import Queue
from ...unit.health.reports import report
from ...waiting import join

# Apprise imports it
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
RUN = "r"


@dataclass
class Receiver:
    """What arrived, and what is answered."""

    port: int = 0
    status: int = 200
    messages: list[dict[str, str]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"json://127.0.0.1:{self.port}/"

    @property
    def titles(self) -> list[str]:
        return [one["title"] for one in self.messages]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if received.status == 200:
                received.messages.append(json.loads(body))
            self.send_response(received.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield received
    server.shutdown()
    join(thread)
    server.server_close()


def judged(steps, **fault):
    """Reports of steps, each with what is wrong with it; those from 4 on have the fault."""
    reports = []
    for step in steps:
        reports.append(report(step, **(fault if step >= 4 else {})))
        found = find_unhealthy(reports)
        reports[-1] = type(reports[-1])(
            **{name: getattr(reports[-1], name) for name in reports[-1].__struct_fields__} | {"health": found}
        )
    return reports


def test_an_alarm_is_sent_once_when_it_fires_and_once_when_it_is_over(settings, receiver):
    faulty = judged(range(1, 10), num_fake_zeros=6)
    with open_notifier(settings, [receiver.address]) as notifier:
        for one in [*faulty, report(10), report(11)]:
            notifier.judge_step(one)

    assert receiver.titles == ["ALARM r: fake_zeros", "OVER r: fake_zeros"]
    assert receiver.messages[0]["message"].startswith("fake_zeros since step 4: rollouts with reward 0")
    assert [one["type"] for one in receiver.messages] == ["warning", "success"]


def test_a_warning_that_becomes_a_stop_is_sent_again(settings, receiver):
    with open_notifier(settings, [receiver.address]) as notifier:
        for one in (*judged(range(1, 7), num_fake_zeros=6), judged(range(1, 8), num_fake_zeros=20)[-1]):
            notifier.judge_step(one)

    assert receiver.titles == ["ALARM r: fake_zeros", "STOP r: fake_zeros"]


def test_neither_a_restart_nor_another_process_sends_it_again(settings, receiver):
    faulty = judged(range(1, 10), num_fake_zeros=6)
    for part in (faulty[:6], faulty[6:8], faulty[:7], faulty[8:]):  # the third is another process that reads late
        with open_notifier(settings, [receiver.address]) as notifier:
            for one in part:
                notifier.judge_step(one)

    assert receiver.titles == ["ALARM r: fake_zeros"]


def test_what_no_address_took_is_sent_with_the_next_step_and_an_address_that_is_gone_hinders_none(settings, receiver):
    faulty, gone = judged(range(1, 9), num_fake_zeros=6), "json://127.0.0.1:9/"
    receiver.status = 500
    with open_notifier(settings, [gone, receiver.address]) as notifier:
        for one in faulty[:7]:
            notifier.judge_step(one)
    assert receiver.titles == []
    receiver.status = 200
    with open_notifier(settings, [gone, receiver.address]) as notifier:
        notifier.judge_step(faulty[7])

    assert receiver.titles == ["ALARM r: fake_zeros"]


def test_the_file_says_what_fires_without_any_address_too(settings):
    with open_notifier(settings) as notifier:
        notifier.judge_step(judged(range(1, 8), num_fake_zeros=20)[-1])

    (found,) = AlarmFile(settings, RUN).read().firing.values()
    assert (found.finding.name, found.finding.level) == ("fake_zeros", "stop")


def test_an_address_that_means_nothing_is_refused_without_its_keys():
    with pytest.raises(BadInputError, match=r"alarm address 2 of 2 \(nowhere\)") as refused:
        open_senders(["json://localhost", "nowhere://secret@host"])
    assert "secret" not in str(refused.value)


def test_addresses_are_scrubbed_as_keys_are():
    settings = Settings(alarm_urls="slack://a/b/c  json://host")
    assert {"slack://a/b/c", "json://host"} <= set(settings.secrets)


def test_a_watch_sends_what_lasts_for_two_looks(settings, redis, keys, receiver):
    settings = settings.model_copy(update={"namespace": keys.namespace})
    Queue(redis, keys, settings).add([Task(id="t", run=RUN, needs=["gpu"])])
    append_progress(progress_path(settings, RUN), judged(range(1, 8), num_fake_zeros=6)[-1])
    looks = []

    def wait() -> bool:
        looks.append([*receiver.titles])
        return len(looks) < 3

    reader = HealthReader(settings, redis, now=lambda: redis.time()[0] + 200.0)
    with open_notifier(settings, [receiver.address]) as notifier:
        watch_runs(reader, notifier, wait)
    with open_notifier(settings, [receiver.address]) as notifier:
        Queue(redis, keys, settings).cancel([one.group_id for one in Queue(redis, keys, settings).dispatcher.groups()])
        watch_runs(reader, notifier, lambda: False)

    assert sorted(receiver.titles) == ["ALARM r: fake_zeros", "ALARM r: unserved", "OVER r: unserved"]
    assert "ALARM r: unserved" not in looks[0]
