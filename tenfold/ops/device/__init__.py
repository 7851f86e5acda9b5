"""Triton functions that the GPU engines are made of. Nothing here is imported without Triton."""
