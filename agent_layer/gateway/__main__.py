"""``python -m agent_layer.gateway``: the gateway as a child process. Its parent registers the engines."""

import argparse
import logging
from pathlib import Path

from agent_layer.gateway.http.peers import PeerProxy
from agent_layer.gateway.serving import listen, serve_gateway
from agent_layer.settings import load_settings


def main() -> None:
    """Serve with the settings of the environment."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    parser = argparse.ArgumentParser(prog="python -m agent_layer.gateway", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--siblings", nargs="*", default=[], help="addresses of all processes that share the port")
    parser.add_argument("--slot", type=int, default=0, help="which of them this is")
    parser.add_argument("--ready", type=Path, help="file to create once this process serves")
    options = parser.parse_args()
    settings = load_settings()
    if not options.siblings:
        serve_gateway(
            settings, [listen(options.host, options.port)], options.ready.touch if options.ready else lambda: None
        )
        return
    peers = PeerProxy(slot=options.slot, urls=options.siblings, wait_seconds=settings.connect_seconds)
    ports = (peers.port, options.port)
    serve_gateway(settings, [listen(options.host, port, is_shared=True) for port in ports], peers=peers)


if __name__ == "__main__":
    main()
