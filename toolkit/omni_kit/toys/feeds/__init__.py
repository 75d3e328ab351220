"""Feeds: how models of a sort are fed, how their batches are divided, and which of their answers count."""
