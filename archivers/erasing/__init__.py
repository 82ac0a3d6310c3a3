"""Erases one series from everything that a policy keeps."""
