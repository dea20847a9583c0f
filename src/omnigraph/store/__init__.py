"""Storage: Lance datasets and control objects behind one seam; the only importer of `lance`.

May import the ground modules only.
"""
