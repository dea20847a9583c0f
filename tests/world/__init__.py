"""One model of the whole product, and long random histories over all of its features at once.

`python -m tests.world --seconds 600` runs histories and prints their seeds; a failure prints the shortest history that
still fails and how to replay it.
"""
