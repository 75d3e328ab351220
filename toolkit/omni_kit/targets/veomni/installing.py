"""How VeOmni is installed where there is no GPU."""

# Its own requirements pull a CUDA build of torch; these are what it imports on a CPU.
INSTALL_VEOMNI = (
    "pip install --no-deps veomni && pip install psutil einops packaging datasets torchdata tiktoken blobfile"
)
