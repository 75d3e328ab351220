"""Output of a run: results, files to repeat it, pictures, and the page."""
