"""The Spark data source `omnigraph`: batch reads, writes and streams."""
