"""Writes: mutations and bounded ingests, checked by the rules and published as one commit each.

May import the ground, `lang`, `store`, `manifest`, `rules` and `engine.session`.
"""
