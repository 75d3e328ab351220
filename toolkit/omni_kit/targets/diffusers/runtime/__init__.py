"""Candidate side, which runs in processes of its own."""
