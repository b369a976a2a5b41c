"""Care of the store: audit, compaction, deletion, retention, garbage collection, rebuild."""
