"""The rules for skills, one module per subject."""
