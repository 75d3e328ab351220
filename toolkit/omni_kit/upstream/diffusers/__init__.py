"""What diffusers says, read without importing it: classes, pipelines and their components."""
