"""``python -m agent_layer.local.scripted`` serves a scripted engine."""

from agent_layer.local.scripted.engine import main

if __name__ == "__main__":
    main()
