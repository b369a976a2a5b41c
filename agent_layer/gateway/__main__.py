"""This file holds ``python -m agent_layer.gateway``: the gateway as a child of whoever put the engines on the board."""

import argparse
import logging

from agent_layer.gateway.serving import listen, serve_gateway
from agent_layer.settings import load_settings


def main() -> None:
    """Serve with the settings of the environment."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    parser = argparse.ArgumentParser(prog="python -m agent_layer.gateway", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args()
    serve_gateway(load_settings(), listen(asked.host, asked.port))


if __name__ == "__main__":
    main()
