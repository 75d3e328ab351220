"""Imported when Python starts in SGLang's environment: SGLang finds stand-ins in every process that it spawns.

`make sglang-env` writes a .pth file that imports this module. It costs nothing until SGLang is imported.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from omni_kit.targets.sglang_diffusion.runtime.stand_ins import register_stand_ins


class BeforeSGLang(MetaPathFinder):
    """Puts stand-ins where packages are missing, just before SGLang is imported for the first time."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing: SGLang itself is found as always."""
        if fullname == "sglang":
            sys.meta_path.remove(self)
            register_stand_ins()
        return None


sys.meta_path.insert(0, BeforeSGLang())
