"""Which engine answers a call: pool, routing, health, external models, preemption."""
