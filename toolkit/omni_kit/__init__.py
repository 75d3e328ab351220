"""omni-kit: bring a new model into a training or serving framework, and prove that it is right."""

__version__ = "0.1.0"
