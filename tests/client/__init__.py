"""The client: what it sends again, what it raises, and that both kinds of it do the same."""
