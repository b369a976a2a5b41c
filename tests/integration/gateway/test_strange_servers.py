"""An address at which something else than an engine answers gives one clear sentence, and breaks nothing else."""

import socketserver
import threading

import pytest

from agent_layer.cli.services.doctor import diagnose
from agent_layer.engines.control import EngineControl, read_model_list
from agent_layer.errors import UnreachableError
from agent_layer.infra import is_responding

from ...waiting import join

ANSWERS = {
    "not HTTP": b"-ERR unknown command\r\n",
    "cut short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "silence": b"",
}


@pytest.fixture(params=ANSWERS)
def strange(request):
    """Address of a server that gives this answer to everything."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while self.rfile.readline().strip():  # the head of a request
                pass
            self.wfile.write(ANSWERS[request.param])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        join(serving)


async def test_it_cannot_join(gateway, strange):
    status, answer = await gateway.post("/engines", {"url": strange})

    assert (status, answer["error"]["code"]) == (502, "UnreachableError")
    assert answer["error"]["message"].startswith(f"engine {strange}: expected an answer to GET /v1/models, found ")


def test_it_is_no_healthy_engine_and_lists_no_models(strange):
    with pytest.raises(UnreachableError, match=f"model {strange}: expected an answer, found "):
        read_model_list(strange, None)
    with pytest.raises(UnreachableError, match=f"engine {strange}: expected an answer to GET /v1/models, found "):
        EngineControl(strange).probe()


@pytest.mark.parametrize("strange", ["not HTTP", "silence"], indirect=True)  # a head is enough for what follows
def test_it_counts_as_no_server_that_is_up(settings, strange):
    assert not EngineControl(strange).is_healthy()
    assert not is_responding(strange)
    found = {one.subject: one for one in diagnose(settings.model_copy(update={"gateway_url": strange}))}
    assert found["gateway"].state == "bad"
    assert f"{strange}/health does not answer" in found["gateway"].finding
