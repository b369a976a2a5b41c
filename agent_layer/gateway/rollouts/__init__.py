"""Open rollouts at the gateway: keys, budgets, retries, prefixes, finalising, resuming."""
