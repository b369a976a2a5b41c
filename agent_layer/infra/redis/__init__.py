"""Redis connections, retry, scripts, key names, rights, and the embedded server."""
