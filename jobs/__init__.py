"""Jobs, and when they run: command line, runner, lease, ledger, scheduler, reports, demo."""
