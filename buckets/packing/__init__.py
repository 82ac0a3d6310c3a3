"""Documents taken apart for the archive, and put together again to the bit."""
