"""A group of one process."""


def model_parallel_is_initialized() -> bool:
    """Return True: one process needs no setting up."""
    return True


def initialize_model_parallel(model_parallel_size_: int, pipeline_length: int = 1) -> None:
    """Do nothing."""


def get_model_parallel_world_size() -> int:
    """Return how many processes share a layer."""
    return 1


def get_model_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_model_parallel_group() -> None:
    """Return no group."""
