"""``python -m agent_layer.cli`` is the command ``agent-layer``."""

from agent_layer.cli.main import main

main()
