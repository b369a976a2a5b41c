"""The shipper: one process for each log directory, which makes segments of logs and enters them into the index."""
