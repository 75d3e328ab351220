"""Imported when Python starts in SGLang's environment: every process that SGLang spawns finds what it imports.

`make sglang-env` writes a .pth file that imports this module. It costs nothing until SGLang or torchvision is imported.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from omni_kit.targets.sglang_diffusion.runtime.stand_ins import declare_operators, register_stand_ins


class BeforeSGLang(MetaPathFinder):
    """Puts stand-ins where packages are missing just before SGLang is imported for the first time.

    Also declares torchvision's operators, where this torch cannot load them, just before torchvision looks for them.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing: both are found as always."""
        if fullname == "sglang" and not any(name.startswith("sglang.") for name in sys.modules):
            register_stand_ins()
        if fullname == "torchvision.extension" and path:
            declare_operators(Path(path[0]))
        return None


sys.meta_path.insert(0, BeforeSGLang())
