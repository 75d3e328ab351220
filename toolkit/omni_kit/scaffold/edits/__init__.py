"""Edits of tables of imports, dicts, definitions and tables of contents: small, and nothing the second time."""
