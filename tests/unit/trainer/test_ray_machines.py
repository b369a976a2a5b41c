"""What a run needs of a Ray cluster, and what keeps its machines from training, without a Ray."""

import os
import subprocess
import sys
from pathlib import Path
from socket import AF_INET, AF_INET6
from types import SimpleNamespace

import psutil
import pytest

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings, adopt_environment, load_settings
from trainer_adapter.cluster.nodes.machine import KnownProcess, Machine, MachineReport, find_interface
from trainer_adapter.cluster.nodes.needs import FreeMachine, find_address, find_shortage, plan_needs, write_needs
from trainer_adapter.config import ClusterConfig, SourceConfig, TrainConfig

from ...waiting import wait_for_exit


def configure(**cluster: object) -> TrainConfig:
    sources = [SourceConfig(path=Path("tasks.jsonl"))]
    return TrainConfig(model=Path("model"), tasks=sources, steps=1, cluster=ClusterConfig(**cluster))


def test_several_machines_without_an_address_are_refused_with_the_commands_that_make_a_cluster():
    with pytest.raises(BadInputError) as caught:
        find_address(configure(nodes=2), Settings(ray_address=None))

    message = str(caught.value)
    assert message.startswith("cluster.nodes 2: expected the address of a Ray cluster")
    assert "'ray start --head --port=6379'" in message
    assert "'ray start --address=HOST:6379'" in message
    assert "set cluster.address (or RAY_ADDRESS)" in message


def test_the_address_of_the_configuration_comes_before_that_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.5:6379")

    assert find_address(configure(nodes=2), load_settings()) == "10.0.0.5:6379"
    assert find_address(configure(address="auto"), load_settings()) == "auto"
    monkeypatch.delenv("RAY_ADDRESS")
    assert find_address(configure(), load_settings()) is None


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("127.0.0.1", "lo"),
        ("10.0.0.5", "eth0"),
        ("10.8.0.7", None),
        ("fd00::2", None),
        ("fd00::3", "eth1"),
        ("02:fc:00:00:00:02", None),
        ("127.0.0.3", None),
    ],
)
def test_gloo_gets_an_interface_only_where_it_would_listen_at_the_address_itself(
    address: str, interface: str | None, monkeypatch: pytest.MonkeyPatch
):
    def addresses(*found: tuple[int, str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(family=family, address=one) for family, one in found]

    monkeypatch.setattr(
        psutil,
        "net_if_addrs",
        lambda: {
            "lo": addresses((AF_INET, "127.0.0.1"), (AF_INET6, "::1")),
            "eth0": addresses((AF_INET, "10.0.0.5"), (AF_INET, "10.8.0.7"), (AF_INET6, "fd00::2")),
            "eth1": addresses((AF_INET6, "fd00::3"), (psutil.AF_LINK, "02:fc:00:00:00:02")),
        },
    )

    assert find_interface(address) == interface


def test_a_dry_run_tells_what_is_needed_of_the_cluster():
    config = configure(nodes=2, gpus_per_node=8, mode="separate_async", engine_gpus=16, tensor_parallel=2)

    assert list(write_needs(plan_needs(config), "auto")) == [
        "Ray cluster auto: 32 GPUs free, looked at when it starts",
        "  2 x 8 GPUs and 24 CPUs on one machine, for the trained model",
        "  8 x 2 GPUs and 4 CPUs on one machine, for one engine",
        "  2 CPUs on any machine, for calls and rewards",
    ]


def test_machines_must_have_the_gpus_of_each_part_together():
    needs = plan_needs(configure(nodes=2, gpus_per_node=4))

    assert find_shortage(needs, [FreeMachine("a", 8, 96)]) is None
    assert find_shortage(needs, [FreeMachine("a", 4, 14), FreeMachine("b", 4, 14)]) is None
    scattered = find_shortage(needs, [FreeMachine("a", 4, 96), FreeMachine("b", 2, 96), FreeMachine("c", 2, 96)])
    assert scattered is not None
    assert scattered.startswith(
        "Ray cluster: expected 2 places of 4 GPUs and 12 CPUs on one machine each, found 1 free on 3 machines:"
        " a (4 GPUs, 96 CPUs), b (2 GPUs, 96 CPUs), c (2 GPUs, 96 CPUs); start Ray on more machines"
    )


def test_engines_take_what_the_trained_model_leaves_even_on_its_machine():
    needs = plan_needs(configure(gpus_per_node=6, mode="separate_async", engine_gpus=4, tensor_parallel=2))

    assert find_shortage(needs, [FreeMachine("a", 8, 64), FreeMachine("b", 2, 8)]) is None
    short = find_shortage(needs, [FreeMachine("a", 8, 64), FreeMachine("b", 1, 8)])
    assert short is not None
    assert "expected 3 places of 2 GPUs and 4 CPUs on one machine each, found 2 free" in short


def test_cpus_beside_those_of_gpus_are_needed():
    needs = plan_needs(configure(gpus_per_node=2))
    short = find_shortage(needs, [FreeMachine("a", 2, 7)])

    assert short is not None
    assert short.startswith("Ray cluster: expected 2 free CPUs beside those of GPUs, found 1 on 1 machine: a")
    parts = [FreeMachine("a", 2, 6.5), FreeMachine("b", 0, 0.75), FreeMachine("c", 0, 0.75)]
    assert find_shortage(needs, parts) is not None, "parts of CPUs on several machines start no actor"
    assert find_shortage(needs, [FreeMachine("head", 0, 0), FreeMachine("a", 2, 8)]) is None


def test_gpus_without_cpus_on_their_own_machine_do_not_count():
    short = find_shortage(plan_needs(configure(gpus_per_node=4)), [FreeMachine("a", 4, 11), FreeMachine("b", 0, 96)])

    assert short is not None
    assert short.startswith("Ray cluster: expected 1 place of 4 GPUs and 12 CPUs on one machine each, found 0 free")


def test_no_machine_at_all_is_named():
    assert "found 0 free on no machine; " in (find_shortage(plan_needs(configure()), []) or "")


def test_other_packages_or_another_python_on_a_machine_are_named():
    from trainer_adapter.cluster.nodes.checks import compare_reports  # noqa: PLC0415  # Ray takes a second

    own = MachineReport("3.11.9", {"ray": "2.60.0", "verl": "0.9.1"}, 0)
    other = MachineReport("3.12.3", {"ray": "2.60.0", "vllm": "0.24.0"}, 8)

    assert list(compare_reports("10.0.0.6", own, own)) == []
    assert [one.split(";")[0] for one in compare_reports("10.0.0.6", other, own)] == [
        "machine 10.0.0.6: expected Python 3.11.9 as on the machine that starts the run, found 3.12.3",
        "machine 10.0.0.6: expected verl 0.9.1 as on the machine that starts the run, found none",
        "machine 10.0.0.6: expected vllm none as on the machine that starts the run, found 0.24.0",
    ]


def test_a_machine_answers_a_token_only_where_it_sees_it(tmp_path: Path):
    (tmp_path / "token").write_text("word")

    assert Machine().answer_token(tmp_path, "token", "answer") is None
    assert (tmp_path / "answer").read_text() == "word"
    assert "No such file" in (Machine().answer_token(tmp_path / "elsewhere", "token", "answer") or "")


def test_a_process_has_ended_also_when_another_has_its_number():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        process = KnownProcess.of(running.pid, "engine")
        assert process.start_ticks is not None
        other = process._replace(start_ticks=process.start_ticks - 1)

        assert Machine().find_ended([process, other]) == [other]
        Machine().kill([other])
        assert running.poll() is None
        Machine().kill([process])
        assert wait_for_exit(running) < 0

    assert Machine().find_ended([process]) == [process]


def test_the_trainer_on_ray_takes_the_variables_of_its_starter_and_keeps_those_of_ray(monkeypatch: pytest.MonkeyPatch):
    variables = {"CUDA_VISIBLE_DEVICES": "", "AGENT_LAYER_DIR": "/of/the/raylet"}
    monkeypatch.setattr(os, "environ", variables)

    adopt_environment({"CUDA_VISIBLE_DEVICES": "0,1", "AGENT_LAYER_DIR": "/shared", "WANDB_API_KEY": "k"})

    assert variables == {"CUDA_VISIBLE_DEVICES": "", "AGENT_LAYER_DIR": "/shared", "WANDB_API_KEY": "k"}


def test_a_clock_that_is_set_ends_no_process(monkeypatch: pytest.MonkeyPatch):
    process, begun = KnownProcess.of(os.getpid(), "rank 0"), psutil.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: begun + 1)

    assert not process.has_ended


def test_parts_on_one_machine_are_looked_at_together():
    from trainer_adapter.cluster.nodes.watch import ServerProcesses, join_by_machine  # noqa: PLC0415  # see above

    one, two, three = (KnownProcess(number, 0, f"rank {number}") for number in (1, 2, 3))
    parts = [ServerProcesses("a", "10.0.0.1", [one]), ServerProcesses("b", "10.0.0.2", [two])]

    assert join_by_machine([*parts, ServerProcesses("a", "10.0.0.1", [three])]) == [
        ServerProcesses("a", "10.0.0.1", [one, three]),
        ServerProcesses("b", "10.0.0.2", [two]),
    ]
    assert join_by_machine([]) == []
