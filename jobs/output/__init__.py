"""What commands print: JSON, tables, pages, progress, logs."""
