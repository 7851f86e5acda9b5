"""Gridworlds of several agents who look for treasure."""
