"""Installation of VeOmni on a machine without a GPU, and the torch that its export needs."""

import ast

from omni_kit.errors import OmniKitError
from omni_kit.pysource.library import find_library

# Its own requirements pull a CUDA build of torch; these are what it imports on a CPU.
INSTALL_VEOMNI = (
    "pip install --no-deps veomni && "
    "pip install transformers==5.9.0 diffusers==0.37.0 psutil einops packaging datasets torchdata tiktoken blobfile"
)
# Its data pipeline resizes videos with torchvision, and opens them with av.
INSTALL_AV = "pip install 'av>=14.3'"
INSTALL_TORCHVISION = "pip install torchvision --index-url https://download.pytorch.org/whl/cpu"
INSTALL_TORCH_TO_EXPORT = "pip install 'torch>=2.9,<2.12'"
_CHECKS, _PREFIXES = "checkpoint/dcp_consolidation.py", "_SUPPORTED_TORCH_VERSION_PREFIXES"


def exporting_torch() -> tuple[str, ...]:
    """Return how versions of torch begin whose consolidation of checkpoints the installed VeOmni patches."""
    try:
        package = find_library("veomni").root
        tree = ast.parse((package / _CHECKS).read_text(encoding="utf-8"))
    except (OmniKitError, OSError, SyntaxError):
        return ()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _PREFIXES:
            return tuple(ast.literal_eval(node.value))
    return ()
