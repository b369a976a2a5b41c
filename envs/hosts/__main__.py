"""This file holds where a process of users' code begins: ``python -m envs.host KIND CHANNEL``, run by a worker."""

import socket
import sys
from typing import Final

from envs.hosts.child import serve_agents, serve_scorers
from envs.hosts.fork_server import serve_fork_server

_KINDS: Final = {"agents": serve_agents, "scorers": serve_scorers, "zygote": serve_fork_server}

if __name__ == "__main__":
    _KINDS[sys.argv[1]](socket.socket(fileno=int(sys.argv[2])))
