"""Commands that start or inspect services: ``serve``, ``up``, ``ingest``, ``engines``, ``alarms``, ``doctor``."""
