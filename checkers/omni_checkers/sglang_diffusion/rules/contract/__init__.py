"""Rules on what is handed from stage to stage."""
