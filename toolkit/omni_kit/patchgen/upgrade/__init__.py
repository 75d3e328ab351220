"""Rebase patch configs onto another version of upstream: three-way merges on syntax trees, and conflicts."""
