"""Route handlers, a module per group of routes."""
