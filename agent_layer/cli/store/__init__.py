"""Commands that take care of the store: check, compact, delete, expire, rebuild, rights."""
