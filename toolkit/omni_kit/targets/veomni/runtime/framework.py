"""VeOmni as every process of a candidate imports it: after the names that it lacks were put back."""

from omni_kit.targets.removed_names import restore_names, said

RESTORED = said(restore_names("veomni"))
"""Names that were put back, in one line."""

import veomni  # noqa: E402
from veomni.models.loader import MODELING_REGISTRY  # noqa: E402

__all__ = ["MODELING_REGISTRY", "RESTORED", "veomni"]
