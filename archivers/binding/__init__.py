"""Whose archive it is: the deployment that writes it, the lineage of its writers, the marker of its store."""
