"""Facts about diffusers, read without importing it: classes, pipelines and their components."""
