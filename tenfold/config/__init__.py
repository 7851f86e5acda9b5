"""Settings: what can be set, how it is read, and what may change."""
