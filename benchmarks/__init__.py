"""What we measure. A topic is a module with one function, `run() -> Topic`, listed in `benchmarks.__main__`."""
