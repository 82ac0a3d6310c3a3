"""Work done in further processes or on a cluster."""
