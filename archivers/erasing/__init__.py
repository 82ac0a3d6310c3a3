"""One series removed from an archive: what each kind of archive owes an erasure."""
