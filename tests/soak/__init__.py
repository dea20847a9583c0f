"""The soak: everything at once on one graph for minutes, with sudden deaths, and a judge who reads the diaries."""
