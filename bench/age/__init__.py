"""What commands cost after many commits, with many series, and for many policies."""
