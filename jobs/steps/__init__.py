"""What the steps of the verbs do, in the words of the JSON."""
