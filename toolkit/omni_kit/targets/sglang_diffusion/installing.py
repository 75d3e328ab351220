"""Installation of SGLang on a machine without a GPU."""

# Its own requirements pull a CUDA build of torch, and other versions than the rest of omni-kit has: it has an
# environment of its own, whose packages are listed in files of this repository.
INSTALL_SGLANG = "make sglang-env, and call .venv-sglang/bin/omni-kit"
