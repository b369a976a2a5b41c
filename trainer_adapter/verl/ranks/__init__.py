"""Several processes that share one model, as torchrun starts them."""
