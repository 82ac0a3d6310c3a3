"""The service: schedules, and metrics."""
