"""What the fast engines need of each algorithm: its gradient and how it acts, compiled."""
