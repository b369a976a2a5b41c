"""Engines as the gateway meets them: how they join, how busy they are, which one a call goes to."""
