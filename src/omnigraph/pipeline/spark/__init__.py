"""The Spark session and its executors."""
