"""Iceberg tables of offline archives: a table a policy, whose files are the parts that stand."""
