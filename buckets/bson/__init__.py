"""BSON as bytes: its types, raw documents, and cursors that give them."""
