"""The text that new-model derives for the files of an integration: as recorded, or derived again."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import File
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_kit.errors import BadInput, OmniKitError
from omni_kit.files import files_matching
from omni_kit.record import ANSWERS, BASE, load_answers, load_base, root_of
from omni_kit.targets.protocol import handler_of, variants_of
from omni_kit.targets.registry import get_target
from omni_kit.upstream.diffusers.local_pipelines import file_outside
from omni_kit.upstream.kinds import Kind

_TARGET, _TEMPLATE = "sglang-diffusion", ".py.jinja"


@dataclass(frozen=True)
class Original:
    """The text that new-model derives for a file.

    Attributes:
        name: of the file, with its folder.
        file: the integration's own file of that name; None if it has none.
        recorded: it is the scaffold's record, and not derived again.
    """

    name: str
    file: File | None
    text: str
    recorded: bool


@fact
def originals(path: Path, files: dict[Path, File], serving: Serving | None = None) -> list[Original]:
    """Return the recorded text of every file; without a record, the text that new-model derives now."""
    record = load_answers(path / ANSWERS)
    if record.files:
        try:
            root = root_of(path.resolve(), record)
        except BadInput as error:
            raise NotApplicable("the integration has moved away from its scaffold record") from error
        return _paired(load_base(path / BASE, record), root, files, recorded=True)
    if serving is None or serving.in_tree or serving.upstream is None:
        raise NotApplicable("the integration has no scaffold record, and its pipeline is not one of diffusers")
    outside = file_outside(serving.upstream)
    source = serving.upstream.cls.node.name if outside is None else f"{outside}::{serving.name}"
    try:
        texts = _derived(path.name, source, _variant(frozenset(file.stem for file in files)))
    except OmniKitError as error:
        raise NotApplicable(f"the integration has no scaffold record, and {error.message}") from error
    return _paired(texts, path.resolve().parent, files, recorded=False)


def _paired(texts: Mapping[str, str], root: Path, files: dict[Path, File], *, recorded: bool) -> list[Original]:
    return [
        Original(name, files.get((root / name).resolve()) or files.get(root / name), text, recorded)
        for name, text in texts.items()
        if name.endswith(".py")
    ]


def _variant(stems: frozenset[str]) -> str | None:
    """Return the variant whose templates have the names of an integration's files; None if no variant has more."""
    from omni_kit.scaffold.render import templates_of  # whoever has a record need not wait for templates

    target = get_target(_TARGET)
    templates = templates_of(target, handler_of(target, Kind.pipeline).templates)
    named = {
        variant: {file.name.removesuffix(_TEMPLATE) for file in files_matching(templates / variant, f"*{_TEMPLATE}")}
        for variant in variants_of(target, Kind.pipeline)
    }
    shared = set.intersection(*named.values())
    counts = {variant: len(stems & (names - shared)) for variant, names in named.items()}
    best = max(counts, key=lambda variant: counts[variant])
    return best if counts[best] else None


@lru_cache(maxsize=16)
def _derived(name: str, source: str, variant: str | None) -> Mapping[str, str]:
    """Return the files of a plugin by path."""
    from omni_kit.scaffold.new_model import draft  # as above

    return draft(name, source, target=_TARGET, style="plugin", into=Path(), kind=variant)[1]
