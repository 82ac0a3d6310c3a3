"""What has changed in a source since its last roll-up."""
