"""Optimize and verify on Spark executors."""
