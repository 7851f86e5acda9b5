"""Run folders: settings, checkpoints, metrics, pictures and pages."""
