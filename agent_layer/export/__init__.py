"""Export: stored trajectories as OpenTelemetry spans, for whatever shows or keeps such. Never the record itself."""
