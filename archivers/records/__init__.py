"""Records in MongoDB: receipts of deletes, heads of the chain, pins."""
