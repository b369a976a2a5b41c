"""The demo: trains the guessing agent for real."""
