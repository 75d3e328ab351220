"""Reads Python: a library's files, names, classes, functions and values. Runs none of it."""
