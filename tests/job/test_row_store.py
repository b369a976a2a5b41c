"""Rows of a run on a joined cluster: on the trainer's machine, even where that offers no CPU, and watched."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ..waiting import read_line
from .ray_machines import TOKEN, ray_machines

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

PROGRAM = """
import os, signal, sys
import ray, torch
import transfer_queue as tq
from tensordict import TensorDict
from trainer_adapter.cluster.nodes.watch import explain_end, join_by_machine
from trainer_adapter.cluster.row_store import find_rows, keep_rows_here

ray.init(sys.argv[1], _node_ip_address=sys.argv[2])
own = ray.get_runtime_context().get_node_id()
keep_rows_here()
tq.init()


def put(number):
    fields = TensorDict({"x": torch.tensor([[number]])}, batch_size=1)
    tq.kv_batch_put(keys=[str(number)], fields=fields, partition_id="train")
    return tq.kv_batch_get(keys=[str(number)], partition_id="train", select_fields=["x"])["x"].unbind(0)[0].item()


parts = join_by_machine(find_rows())
print([part.node_id == own for part in parts], put(1), explain_end(parts[0]), flush=True)
input()  # the other machine ends
print(put(2), explain_end(parts[0]), flush=True)
os.kill(next(one.pid for one in parts[0].processes if "controller" in one.name), signal.SIGKILL)
while (end := explain_end(parts[0])) is None:
    pass
print(end.why, flush=True)
os._exit(0)
"""


def test_rows_are_on_a_head_without_cpus_outlive_another_machine_and_their_end_is_seen(
    monkeypatch: pytest.MonkeyPatch,
):
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    with (
        tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as home,
        ray_machines(Path(home), 1, num_gpus=0, num_cpus=0) as machines,
    ):
        head, other = machines.machines[0], machines.add(num_gpus=0, num_cpus=4)
        command = [sys.executable, "-c", PROGRAM, machines.address, head.host]
        log = (Path(home) / "program.log").open("wb")
        with log, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as program:
            assert read_line(program, 240, log=Path(log.name)) == b"[True] 1 None\n"
            other.lose_power()
            assert program.stdin is not None
            program.stdin.write(b"\n")
            program.stdin.flush()
            assert read_line(program, 60) == b"2 None\n"
            assert re.fullmatch(rb"rows' controller \(process \d+\) has ended\n", read_line(program, 60))
