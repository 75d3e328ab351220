"""Facts about transformers, read without importing it: configs, models, recipes for loading."""
