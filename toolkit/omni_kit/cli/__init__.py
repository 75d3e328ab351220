"""The Typer app: one file a command. Commands parse, call the library and render; they hold no logic.

Importing this package imports neither torch nor transformers: each command imports its room when it runs.
"""

from omni_kit.cli import check as _check  # noqa: F401
from omni_kit.cli import check_layout as _check_layout  # noqa: F401
from omni_kit.cli import convert as _convert  # noqa: F401
from omni_kit.cli import demo as _demo  # noqa: F401
from omni_kit.cli import doctor as _doctor  # noqa: F401
from omni_kit.cli import inspect as _inspect  # noqa: F401
from omni_kit.cli import kernels as _kernels  # noqa: F401
from omni_kit.cli import new_model as _new_model  # noqa: F401
from omni_kit.cli import parity as _parity  # noqa: F401
from omni_kit.cli import patchgen as _patchgen  # noqa: F401
from omni_kit.cli import patchgen_upgrade as _patchgen_upgrade  # noqa: F401
from omni_kit.cli import reference as _reference  # noqa: F401
from omni_kit.cli import rules as _rules  # noqa: F401
from omni_kit.cli import skills as _skills  # noqa: F401
from omni_kit.cli import update as _update  # noqa: F401
from omni_kit.cli import upgrade as _upgrade  # noqa: F401
from omni_kit.cli import verify as _verify  # noqa: F401
from omni_kit.cli.app import app, main

__all__ = ["app", "main"]
