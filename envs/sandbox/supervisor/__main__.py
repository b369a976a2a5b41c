"""Entry point of a supervisor: ``python -m envs.sandbox.supervisor DESCRIPTOR SOCKET``, started by a worker."""

import logging
import socket
import sys
from pathlib import Path

from envs.sandbox.supervisor.server import serve_supervisor

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    serve_supervisor(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
