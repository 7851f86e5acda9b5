"""Policies that run elsewhere: a file of the whole policy (`files`), and an archive of a run."""
