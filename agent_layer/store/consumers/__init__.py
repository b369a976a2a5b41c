"""Consumers of finished groups: claims with acknowledgement, and what an update trained on."""
