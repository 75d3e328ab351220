"""Rules about exports and copied code."""
