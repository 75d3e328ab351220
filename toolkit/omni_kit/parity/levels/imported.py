"""The level `import`."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Import(Level):
    """The integration's own process imports it, and finds what it says that it registers."""

    name = "import"
    says = "it imports, and registers the classes that it declares"
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        facts = case.pair.imported()
        return LevelVerdict(Comparison(), said=f"{facts['library']} {facts['version']}")
