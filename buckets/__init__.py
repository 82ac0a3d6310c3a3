"""How readings lie in documents: one file a bucket model; documents ⇄ columns."""
