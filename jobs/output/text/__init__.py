"""The text output of each verb."""
