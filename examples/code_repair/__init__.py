"""Agents that repair code in the attempt's sandbox."""
