"""A group of one process."""


def get_sequence_parallel_world_size() -> int:
    """Return how many processes share a sequence."""
    return 1


def get_sequence_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_ulysses_parallel_world_size() -> int:
    """Return how many processes share the heads of a sequence."""
    return 1


def get_ulysses_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_ring_parallel_world_size() -> int:
    """Return how many processes pass a sequence round."""
    return 1


def get_ring_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_classifier_free_guidance_world_size() -> int:
    """Return how many processes share the halves of a guided batch."""
    return 1


def get_classifier_free_guidance_rank() -> int:
    """Return which of them this is."""
    return 0


def get_tensor_model_parallel_world_size() -> int:
    """Return how many processes share a layer."""
    return 1


def get_tensor_model_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_data_parallel_world_size() -> int:
    """Return how many processes have samples of their own."""
    return 1


def get_data_parallel_rank() -> int:
    """Return which of them this is."""
    return 0


def get_sp_group() -> None:
    """Return no group."""
