"""HTTP shell of the gateway: routes, keys, errors, binding, peers, metrics."""
