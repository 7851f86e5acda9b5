"""Hidden dynamics, learned by experiments or from recordings."""
