"""What transformers says, read without importing it: configs, models, recipes for loading."""
