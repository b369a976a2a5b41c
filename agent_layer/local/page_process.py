"""``python -m agent_layer.local.page_process``: the page beside a run as a child process; ``page`` starts it."""

import argparse
import asyncio
import logging
import os
import socket
import sys

from agent_layer.errors import AgentLayerError
from agent_layer.gateway import load_tls, serve_until_stopped
from agent_layer.settings import load_settings
from agent_layer.store import open_store
from agent_layer.view import ReadContext, build_view_app

_NICENESS = 10


def main() -> None:
    """Serve with the settings of the environment, at a listener of the parent."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    parser = argparse.ArgumentParser(prog="python -m agent_layer.local.page_process", description=__doc__)
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a socket that listens")
    with socket.socket(fileno=parser.parse_args().listener) as listener:
        os.nice(_NICENESS)
        try:
            settings = load_settings()
            settings = settings.model_copy(update={"redis_url": settings.reader_redis_url or settings.redis_url})
            app, tls = build_view_app(ReadContext(settings, open_store(settings))), load_tls(settings)
        except AgentLayerError as error:
            sys.exit(str(error))
        asyncio.run(serve_until_stopped(app, [listener], tls, settings.header_seconds))


if __name__ == "__main__":
    main()
