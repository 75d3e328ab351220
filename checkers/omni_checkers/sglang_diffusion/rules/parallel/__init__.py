"""Rules on work that several devices share."""
