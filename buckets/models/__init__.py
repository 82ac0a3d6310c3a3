"""The bucket models: how readings lie in documents."""
