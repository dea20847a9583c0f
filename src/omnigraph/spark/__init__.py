"""The Spark session, tasks on its executors, and the Java runtime it needs."""
