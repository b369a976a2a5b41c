"""The command ``agent-layer``: one folder for each family of commands."""
