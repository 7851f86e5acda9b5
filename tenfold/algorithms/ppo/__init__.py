"""Proximal policy optimisation: agent, learner, engines."""
