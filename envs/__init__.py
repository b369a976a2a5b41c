"""Environments, the workers that run agents in them, and the scorers that judge what came out."""

from envs.environment import Environment, StepResult
from envs.resuming.declaring import resumable

__all__ = ["Environment", "StepResult", "resumable"]
