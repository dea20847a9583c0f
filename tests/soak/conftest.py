"""What pytest must not import: looking for doctests in it would give the limits of a soak to all other tests."""

collect_ignore = ["preload.py"]
