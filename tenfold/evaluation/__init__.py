"""Episodes of fixed policies, and what they say."""
