"""Commands that start or inspect services: ``serve``, ``up``, ``ingest``, ``engines``, ``alerts``, ``doctor``."""
