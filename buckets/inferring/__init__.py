"""What a few documents of an unknown collection are: a policy for them, with the reasons for it."""
