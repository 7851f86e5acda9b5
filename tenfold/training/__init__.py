"""The training loop, and what happens around it."""
