"""The level `roundtrip`."""

from typing import TYPE_CHECKING

from omni_kit.isolation.worker import StepError
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.places import Places
from omni_kit.plurals import counted
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case

_NOT_RECOGNISED = (
    "the loader knows no place for some tensors of this checkpoint, and filled others at random instead; "
    "--layout memory compares on a checkpoint with the names that upstream's model itself has"
)


class Roundtrip(Level):
    """Upstream's checkpoint through the integration's loader, then its export through upstream's loader."""

    name = "roundtrip"
    says = "loading and export keep every bit of upstream's checkpoint"
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`. Where a side exports nothing, loading alone is compared."""
        from omni_kit.parity.compare.tensors import compare_exactly

        state = case.pair.state()
        try:
            loaded = compare_exactly(state, case.evidence.loaded())
        except StepError as error:
            if error.blames_candidate and not error.reported and not error.place:
                error.place = Places(case).of_failed_loading()
            raise
        if any("never loaded" in worst.why for worst in loaded.worst):
            case.note(_NOT_RECOGNISED)
        if not loaded.ok:
            return LevelVerdict(
                loaded, f"loading: {loaded.reason('tensor')}", 0.0, place=Places(case).of_loading(loaded)
            )
        if Ability.export not in case.offers:
            return LevelVerdict(loaded, tolerance=0.0, said="loading alone: there is nothing to export")
        exported = compare_exactly(state, case.evidence.exported())
        wrong = case.evidence.exported_config() if exported.ok else exported.reason("tensor")
        said = f"{counted(exported.compared, 'tensor')} loaded and exported"
        place = Places(case).of_saving(exported) if wrong else ""
        return LevelVerdict(exported, f"saving: {wrong}" if wrong else "", 0.0, said, place=place)
