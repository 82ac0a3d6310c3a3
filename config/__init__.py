"""What may be said: settings and policies, how they are loaded, and errors."""
