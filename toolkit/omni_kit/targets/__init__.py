"""Targets: one package a framework, which knows where things live there and what they are called, by version."""
