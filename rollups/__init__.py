"""Windows, mergeable summaries, and the roll-up that writes them."""
