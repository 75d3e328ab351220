"""Reads Python: a library's files, its names, its classes and functions, and what they compute. Runs none of it."""
