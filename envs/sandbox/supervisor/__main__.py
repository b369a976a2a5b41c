"""Entry point of a supervisor: ``python -m envs.sandbox.supervisor DESCRIPTOR SOCKET WORKER``, started by that worker.

The kernel continues it when the worker ends, so that one that was stopped ends its boxes too.
"""

import logging
import signal
import socket
import sys
from pathlib import Path

from agent_layer.infra import die_with_parent
from envs.sandbox.supervisor.server import serve_supervisor

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    die_with_parent(int(sys.argv[3]), signal.SIGCONT)
    serve_supervisor(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
