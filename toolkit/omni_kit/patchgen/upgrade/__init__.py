"""Rebase patch configs from one version of upstream to another: three-way merges on syntax trees, and what is left."""
