"""What makes data valid: row rules on Arrow batches and set rules as relational checks.

May import the ground, `lang`, `store` and `manifest`.
"""
