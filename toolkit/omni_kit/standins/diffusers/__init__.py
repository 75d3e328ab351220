"""What earlier versions of diffusers had, and the installed one has not."""
