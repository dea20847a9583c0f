"""Fixtures, models, oracles and child processes that tests share."""
