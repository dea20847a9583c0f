"""The sources of a pipeline as Spark frames: files, objects and databases, and which of their rows are new."""
