"""The media integrations that VeOmni ships, site by site next to the derived ones for the same models."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import OmniKitError
from omni_kit.patchgen.loader import load_config
from omni_kit.patchgen.locate import Libraries
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import SourceFile
from omni_kit.scaffold import new_model
from omni_kit.targets.protocol import Decision
from omni_kit.targets.veomni.checkout import MODELS
from omni_kit.targets.veomni.model_dir import registered_in
from omni_kit.targets.veomni.text.sites import trained_part
from omni_kit.upstream.kinds import MULTIMODAL
from omni_kit.upstream.subject import open_source

_TARGET, _CONFIGS = "veomni", "*_gpu_patch_gen_config.py"
_TOWER = "each process runs the whole tower on all media: upstream's code stays"
_DUMMY = "the method that merges runs on dummy media, tower and projector alike"
_KEPT = "upstream's code stays: nothing in it keeps VeOmni from training it"
_CONTAINER = "the plugin is for its part {part}: what generates speech is never built"
_NEW = "VeOmni's own optimisation, which is not derived"


@dataclass(frozen=True)
class Row:
    """One site of one model.

    Attributes:
        shipped, derived: what each does there; empty if it leaves upstream's code.
        why: of a difference, where it comes from.
    """

    site: str
    shipped: str
    derived: str
    why: str = ""


def names() -> list[str]:
    """Return the model_types with media that the installed VeOmni registers, in order."""
    return sorted(_shipped())


def _shipped() -> dict[str, Path]:
    """model_type -> VeOmni's patch config of it."""
    root, found = find_library(_TARGET).root.parent / MODELS, dict[str, Path]()
    for folder in sorted(root.iterdir()):
        for key in registered_in(folder):
            config = next(iter(sorted(folder.glob(_CONFIGS))), None)
            try:
                kind = open_source(key).kind
            except OmniKitError:
                continue
            if config is not None and kind in MULTIMODAL:
                found[key] = config
    return found


def rows_of(name: str, part: str, config: Path) -> list[Row] | str:
    """Return the sites of a model in the order of upstream's names; or why nothing is derived for it.

    Args:
        part: the model_type that is derived: its own, or that of its part that has a loss.
    """
    shipped = _patches(config)
    with tempfile.TemporaryDirectory(prefix="omni-kit-handwritten-") as place:
        try:
            scaffold = new_model("derived", part, target=_TARGET, into=Path(place), transformers=_running())
        except OmniKitError as error:
            return error.message
        derived = _patches(next(Path(place).glob(f"derived/{_CONFIGS}")))
    model, decisions = open_source(name).model, scaffold.plan.decisions
    if part != name:
        around = _CONTAINER.format(part=part)
        decisions = [
            Decision(site, "upstream", around, "") for site in shipped if site.startswith(f"{model.class_name}.")
        ]
        decisions += scaffold.plan.decisions
    every = sorted({*shipped, *derived})
    return [_row(site, shipped, derived, decisions, model.source) for site in every]


def _running() -> Path:
    return find_library("transformers").root


def _patches(config: Path) -> dict[str, str]:
    """Target -> description."""
    patches = load_config(config, Libraries(), run=False).config.patches
    return {patch.target: patch.description or "patched" for patch in patches}


def _row(
    site: str,
    shipped: Mapping[str, str],
    derived: Mapping[str, str],
    decisions: Sequence[Decision],
    source: SourceFile,
) -> Row:
    ours, theirs = derived.get(site, ""), shipped.get(site, "")
    if ours and theirs:
        return Row(site, theirs, ours)
    if ours:
        why = (one.reason for one in decisions if one.choice == "patch" and one.what.endswith(f" {site}"))
        return Row(site, "", ours, next(why, "VeOmni's leaves upstream's code here"))
    return Row(site, theirs, "", next(_reasons(site, decisions, source)))


def _reasons(site: str, decisions: Sequence[Decision], source: SourceFile) -> Iterator[str]:
    """Yield why nothing is derived for a site, the most exact reason first."""
    owner, _, method = site.partition(".")
    if method.startswith("dummy"):
        yield _DUMMY
    yield from (one.reason for one in decisions if one.what.endswith(site) and one.choice != "patch")
    if any(word in owner for word in ("Vision", "Visual", "Audio")) or "vision" in site:
        yield _TOWER
    if method and source.method(owner, method) is None:
        yield f"{_NEW}: upstream has no {method}"
    yield _KEPT


def page(model_types: Sequence[str]) -> str:
    """Return a table for each model, and how many of its sites are patched by both."""
    library, shipped = find_library("transformers"), _shipped()
    lines = [
        "# Media models: derived next to VeOmni's own",
        "",
        f"Made by `make media-models` with {library.name} {library.version} and the installed VeOmni: what its patch",
        "configs change, and what `new-model` changes in the same classes.",
    ]
    for name in model_types:
        part = trained_part(open_source(name).model) or name
        found = rows_of(name, part, shipped[name])
        lines += ["", f"## {name}", ""]
        if part != name:
            lines += [f"Derived for its part {part}, which has the loss.", ""]
        if isinstance(found, str):
            lines += [f"Not derived: {found}."]
            continue
        both = sum(bool(row.shipped and row.derived) for row in found)
        lines += [
            f"{both} sites patched by both, {sum(not row.derived for row in found)} by VeOmni alone, "
            f"{sum(not row.shipped for row in found)} derived alone.",
            "",
            "| site | VeOmni's | derived | why they differ |",
            "|---|---|---|---|",
            *(
                f"| {row.site} | {_cell(row.shipped)} | {_cell(row.derived)} | {_cell(row.why) if row.why else ''} |"
                for row in found
            ),
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "upstream's code"
