"""Programs for those who work on this repository: they write what is generated in README and skills."""
