"""Stable-Baselines3's classes, arguments and files, on tenfold's engines."""
