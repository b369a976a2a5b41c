"""Ingest: logs of machines without access to the store; spans of others, which become steps as far as they tell."""
