"""What the API answers, as records: of many trajectories, and of one."""
