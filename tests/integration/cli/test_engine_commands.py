"""Operators decide about engines as they type it."""

import pytest
from typer.testing import CliRunner

from agent_layer.cli.main import build
from agent_layer.errors import BadInputError, EngineError, NotFoundError
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


def test_a_shell_holds_and_releases_the_calls_of_an_engine(run):
    with serve_in_thread(ScriptedEngine()) as engine:
        run("join", engine.url, "--pushed")
        run("hold", engine.url)
        run("release", f"{engine.url}/v1", "--version", "7", "--location", "owner:7")
        assert run("list").splitlines()[-1].split()[2:5] == ["7", "serving,", "pushed"]


def test_a_hold_without_new_weights_is_cancelled(run):
    with serve_in_thread(ScriptedEngine()) as engine:
        run("join", engine.url)
        run("hold", engine.url)
        assert "loading" in run("list")
        run("release", engine.url, "--cancel")
        assert "serving" in run("list")


def test_an_engine_that_never_served_stays_out_when_its_hold_is_cancelled(run):
    with serve_in_thread(ScriptedEngine()) as engine:
        run("join", engine.url, "--pushed")
        run("hold", engine.url)
        with pytest.raises(EngineError, match="never served"):
            run("release", engine.url, "--cancel")
        assert "loading" in run("list")


def test_only_held_engines_are_released_and_either_way(run):
    with serve_in_thread(ScriptedEngine()) as engine:
        run("join", engine.url)
        with pytest.raises(EngineError, match="engines hold"):
            run("release", engine.url, "--cancel")
        with pytest.raises(BadInputError, match="either"):
            run("release", engine.url)
        with pytest.raises(BadInputError, match="either"):
            run("release", engine.url, "--version", "1", "--location", "x", "--cancel")
