"""Server-sent events: one watcher of the store for all pages, and a bounded stream for each of them."""
