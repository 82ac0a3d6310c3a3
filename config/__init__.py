"""Settings and policies, how they are loaded, and errors."""
