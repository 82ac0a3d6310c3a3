"""The audit, and the service, as pages for people."""
