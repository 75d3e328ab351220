"""The step that authors' own loop does, divided where it asks its model; read, never run."""
