"""Documents to columns: decoded, checked, sorted."""
