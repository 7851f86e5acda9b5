"""Fields of work, one folder each: environments, rules, evaluation, settings, presets and pages of
one field."""
