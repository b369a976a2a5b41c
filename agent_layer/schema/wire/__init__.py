"""Forms that travel over HTTP: the gateway's own API, W3C trace context, and pieces of streamed chat messages."""
