"""Masked heads as compiled code, for environment runners and learners of other libraries."""
