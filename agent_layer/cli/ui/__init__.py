"""Output of all commands: tables, live views, progress, trajectories as text."""
