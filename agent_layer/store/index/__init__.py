"""The search index in Redis: commit, plan, search, count, aggregate."""
