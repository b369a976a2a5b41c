"""Programs that the interpreters of foreign packages run; they import nothing of ours."""
