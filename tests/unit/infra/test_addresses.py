"""A free port is no other's, from the moment it is named."""

import socket
import subprocess
import sys

import pytest

from agent_layer.infra.processes.addresses import free_port, is_free, is_listening

RESERVE = """
from agent_layer.infra.processes.addresses import free_port
print(*[free_port() for _ in range(400)], flush=True)
input()
"""


def test_no_two_who_ask_get_the_same_port():
    """By chance, two of these 800 would be equal in all but one of 10,000 runs."""
    processes = [
        subprocess.Popen([sys.executable, "-c", RESERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ports = [int(port) for process in processes for port in process.stdout.readline().split()]
    for process in processes:
        process.communicate("\n")

    assert len(ports) == len(set(ports)) == 800


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_server_can_listen_there_and_once_more_when_it_starts_again(host):
    port = free_port()
    assert is_free(port)
    assert not is_listening(f"http://127.0.0.1:{port}")
    for _ in range(2):
        with socket.create_server((host, port)), socket.create_connection(("127.0.0.1", port)):
            assert is_listening(f"http://127.0.0.1:{port}")
