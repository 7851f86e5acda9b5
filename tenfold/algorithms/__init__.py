"""Algorithms, one folder each, to be read from top to bottom."""
