"""Groups of a program of one process: there are none."""


def is_initialized() -> bool:
    """Return False: nothing is set up."""
    return False


def model_parallel_is_initialized() -> bool:
    """Return False: nothing is set up."""
    return False


def get_data_parallel_world_size() -> int:
    """Return how many processes have samples of their own."""
    return 1


def get_data_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_data_parallel_group() -> None:
    """Return no group."""


def get_context_parallel_world_size() -> int:
    """Return how many processes share a sequence."""
    return 1


def get_context_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_context_parallel_group() -> None:
    """Return no group."""


def get_tensor_model_parallel_world_size() -> int:
    """Return how many processes share a layer."""
    return 1


def get_tensor_model_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_tensor_model_parallel_group() -> None:
    """Return no group."""
