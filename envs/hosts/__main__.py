"""Entry point of host processes: ``python -m envs.hosts KIND DESCRIPTOR``, started by a worker."""

import socket
import sys
from contextlib import suppress
from typing import Final

from envs.channel import ChannelClosedError
from envs.hosts.fork_server import serve_fork_server
from envs.hosts.mains import serve_agents, serve_scorers

_KINDS: Final = {"agents": serve_agents, "scorers": serve_scorers, "fork-server": serve_fork_server}

if __name__ == "__main__":
    with suppress(ChannelClosedError):
        _KINDS[sys.argv[1]](socket.socket(fileno=int(sys.argv[2])))
