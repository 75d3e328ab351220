"""The one verdict."""
