"""Leaks: whether what an agent sees holds what its scorer expects, in any form that a program can undo."""
