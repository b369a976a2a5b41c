"""Who reaches veRL's own servers: those with their key. vLLM imports the middleware by its path."""
