"""What each command prints with `--json`, as types: what a policy's part has, and what the object has beside
`policies`."""
