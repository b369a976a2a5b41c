"""Commands over the dispatcher: submit tasks, watch and steer what runs."""
