"""What a run found: results, files to run it again from, pictures, and the page."""
