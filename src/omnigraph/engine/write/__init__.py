"""Mutations and bounded ingests, validated by the rules and published as one commit each.

May import the ground, `lang`, `store`, `manifest`, `rules` and `engine.session`.
"""
