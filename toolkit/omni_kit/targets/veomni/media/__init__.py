"""Models that read pictures, films and sound: what VeOmni needs of them beyond what it needs of their text part."""
