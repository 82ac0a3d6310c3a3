"""The end of an archive: what `retain.archive` takes out of it for good, and how that is called off."""
