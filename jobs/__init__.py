"""What runs and when: command line, runner, lease, ledger, scheduler, reports, demo."""
