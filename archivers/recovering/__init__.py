"""Records of commits, and recovery after a crash: commits are finished, undone, or adopted."""
