"""The declaration of pipelines: a YAML file, its SQL and its schedules, checked before anything runs."""
