"""What each verb says to people."""
