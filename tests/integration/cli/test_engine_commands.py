"""Operators decide about engines as they type it."""

import pytest
from typer.testing import CliRunner

from agent_layer.cli.main import build
from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread


@pytest.fixture
def run(settings, monkeypatch):
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def invoke(*arguments):
        ended = CliRunner().invoke(build(), ["engines", *arguments], catch_exceptions=True)
        if ended.exception and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return ended.output

    return invoke


def test_an_engine_joins_drains_and_leaves(run):
    with serve_in_thread(ScriptedEngine()) as engine:
        assert "serves version 0 of run default" in run("join", f"{engine.url}/v1")
        assert engine.url in run()
        run("drain", engine.url)
        assert "serving, drained" in run("list")
        run("join", engine.url)
        assert "drained" not in run("list")
        run("leave", engine.url)
        assert engine.url not in run("list")


def test_an_address_that_is_not_allowed_may_be_allowed(run, monkeypatch):
    with pytest.raises(BadInputError, match="AGENT_LAYER_ENGINE_ALLOW"):
        run("join", "http://192.0.2.1:8000")
    monkeypatch.setenv("AGENT_LAYER_ENGINE_ALLOW", "192.0.2.0/24")
    with pytest.raises(BadInputError, match="AGENT_LAYER_ENGINE_ALLOW"):
        run("join", "http://192.0.3.1:8000")


def test_an_unknown_engine_cannot_leave(run):
    with pytest.raises(NotFoundError):
        run("leave", "http://127.0.0.1:9")
