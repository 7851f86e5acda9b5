"""Colonies that grow and die on a stiffness gradient."""
