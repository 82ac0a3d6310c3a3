"""The service: schedules, metrics, and a page."""
