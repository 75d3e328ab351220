"""Rules on what SGLang finds by its objects: pipelines, configs, denoisers."""
