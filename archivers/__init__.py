"""Archives: export, verify, commit, guarded delete; restore, verify and audit."""
