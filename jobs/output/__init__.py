"""Output of commands: JSON, tables, pages, progress, logs."""
