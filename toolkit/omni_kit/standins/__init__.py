"""Stand-ins for packages that authors' code imports: small, under the packages' own names, in plain torch.

The reference's process imports one where the package is not installed. A port contains the source of what it uses, so
that it needs neither the package nor this one.
"""

from functools import cache
from pathlib import Path

STAND_INS = "standins"
ROOT = Path(__file__).resolve().parent


@cache
def stand_ins() -> frozenset[str]:
    """Return the packages that have one."""
    return frozenset(place.name.removesuffix(".py") for place in ROOT.iterdir() if _is_package(place))


def _is_package(place: Path) -> bool:
    return (place / "__init__.py").is_file() or (place.suffix == ".py" and place.stem != "__init__")
