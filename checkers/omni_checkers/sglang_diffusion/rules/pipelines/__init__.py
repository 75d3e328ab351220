"""Rules on what SGLang finds: registration, components, configs, classes."""
