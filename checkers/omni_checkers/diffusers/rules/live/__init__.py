"""Rules about what only a run can tell."""
