"""A vLLM that does not serve in time is stopped, and its start is named with the setting that allows more."""


def test_the_start_of_an_engine_has_the_limit_of_the_setting(agent_layer, model, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_ENGINE_SECONDS", "0.5")

    status, _, said = agent_layer("up", "--model", model, "--port", "0")

    assert status == 1
    assert "expected it to serve within 0.5 s" in said
    assert "AGENT_LAYER_ENGINE_SECONDS" in said
