"""How the evaluated model is found, and what a wrong one is answered."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from envs.evaluation.identity import describe_command, describe_target, fingerprint_weights
from envs.evaluation.models import ModelChoice, serve_model


@pytest.fixture
def endpoint():
    """A server without token ids that asks for the key 'theirs' and lists ``models``."""

    class Endpoint(BaseHTTPRequestHandler):
        models = ("small", "large")

        def do_GET(self):
            if self.headers.get("Authorization") != "Bearer theirs":
                return self._answer(401, {"error": {"message": "no key"}})
            return self._answer(200, {"data": [{"id": name} for name in self.models]})

        def do_POST(self):
            self._answer(401, {"error": {"message": "no key"}})

        def _answer(self, status, body):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def find(settings, model, model_name=None, *, needs_model=True):
    """Return the model and the settings of its gateway."""
    choice = ModelChoice(model=model, name=model_name)
    with serve_model(settings, choice, needs_model=needs_model, report_phase=lambda _: None) as served:
        return served.model, served.settings


def test_a_server_of_several_models_asks_for_a_name_and_a_key(settings, endpoint, monkeypatch):
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    with pytest.raises(BadInputError, match="OPENAI_API_KEY"):
        find(settings, url)
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    with pytest.raises(BadInputError, match=r"found 2 \(small, large\); choose with --model-name"):
        find(settings, url)

    model, found = find(settings.model_copy(update={"policy_key": "theirs"}), url, "large")

    assert (model.kind, model.name, model.location) == ("endpoint", "large", url.removesuffix("/v1"))
    assert (found.policy_url, found.policy_key, found.model) == (model.location, "theirs", "large")


def test_another_model_at_a_known_address_is_another_model(settings):
    with serve_in_thread(ScriptedEngine(model="first")) as engine:
        assert find(settings, engine.url)[0].name == "first"
        engine.model = "second"
        assert find(settings, None)[0].name == "second"  # at the address that is registered


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "--model URL"),
        ("no-such-folder", "expected an address"),
        ("missing.py:answer", "missing.py:answer"),
        ("http://", "expected http://HOST:PORT"),
    ],
)
def test_a_model_that_cannot_be_found_is_one_sentence(settings, model, message):
    with pytest.raises(BadInputError, match=message) as refused:
        find(settings, model)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("model", [None, "http://127.0.0.1:9", "script.py:answer"])
def test_a_parser_for_a_model_that_is_served_already_is_refused(settings, model):
    choice = ModelChoice(model=model, tool_parser="hermes")
    with (
        pytest.raises(BadInputError, match="beside --model PATH"),
        serve_model(settings, choice, needs_model=True, report_phase=lambda _: None),
    ):
        pass


def test_a_server_that_does_not_answer_is_unreachable(settings):
    with pytest.raises(UnreachableError):
        find(settings, "http://127.0.0.1:9/v1")


def test_agents_that_call_no_model_need_none_and_the_users_limit_of_cost_stays(settings):
    limit = '{"dollars": 5, "policy": {"prompt": 1, "response": 1}}'
    model, found = find(settings.model_copy(update={"cost_limit": limit}), None, needs_model=False)

    assert (model.kind, found.cost_limit) == ("none", limit)


def test_a_configured_gateway_has_its_own_model(settings):
    with pytest.raises(BadInputError, match="AGENT_LAYER_GATEWAY_URL"):
        find(settings.model_copy(update={"gateway_url": "http://127.0.0.1:9"}), "http://127.0.0.1:9")


def test_a_fingerprint_covers_both_ends_of_the_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    found = set()
    for content in (b"a" * 3, b"b" * 3, b"a" * (3 << 20), b"a" * ((3 << 20) - 1) + b"b"):
        weights.write_bytes(content)
        found.add(fingerprint_weights(tmp_path))

    assert len(found) == 4


def test_the_version_of_an_agent_follows_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "some_agent.py"
    file.write_text("a = 1")
    target, command = describe_target("some_agent:a"), describe_command(["python", str(file)])
    file.write_text("a = 2")

    assert describe_target("some_agent:a").version not in (None, target.version)
    assert describe_command(["python", str(file)]).version not in (None, command.version)


def test_an_agent_without_a_module_is_refused_before_anything_starts():
    with pytest.raises(BadInputError, match="no module 'no_such_module'"):
        describe_target("no_such_module:a")
