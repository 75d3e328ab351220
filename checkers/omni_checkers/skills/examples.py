"""Shared parts of the examples of rules about skills."""

HEAD = "---\nname: example\ndescription: Adds two numbers. Use when asked for a sum.\n---\n# Example\n\n"
"""The front matter and title of a skill without faults."""
