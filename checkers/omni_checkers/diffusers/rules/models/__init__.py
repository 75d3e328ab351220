"""Rules about models."""
