"""A load of any size: split, stage, check, publish once."""
