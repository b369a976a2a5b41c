"""The command ``agent-layer``: one file for each command or family of commands, put together in ``main``."""
