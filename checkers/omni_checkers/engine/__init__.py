"""The engine: rules, findings, facts injected by name, suppressions, and the run over several models."""
