"""From a SOURCE to the files of an integration."""

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.files import inside
from omni_kit.layout import judge, read_checkpoint
from omni_kit.scaffold.answers import ANSWERS, dump_answers, load_answers
from omni_kit.scaffold.codemods import apply_edit
from omni_kit.scaffold.render import render
from omni_kit.scaffold.write import FileChange, compare, digest, write
from omni_kit.targets import Plan, Request, Style, get_target
from omni_kit.upstream.library import find_library
from omni_kit.upstream.model import upstream_model
from omni_kit.upstream.profile import profile
from omni_kit.upstream.sources import model_config, read_source_argument


@dataclass(frozen=True)
class Scaffold:
    """The result of new-model.

    Attributes:
        changes: every file with what was, or would be, done to it.
        refused: why nothing was written; empty when all is well.
    """

    root: Path
    plan: Plan
    changes: tuple[FileChange, ...]
    refused: tuple[str, ...]


def new_model(
    name: str,
    source: str,
    *,
    target: str,
    style: Style = "plugin",
    into: Path = Path(),
    kind: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    transformers: Path | None = None,
) -> Scaffold:
    """Makes an integration of the model at `source`.

    Args:
        name: the integration's name: a Python identifier.
        source: SOURCE of the command line.
        target: the framework.
        style: "plugin" for a package of its own below `into`, "in-tree" when `into` is the framework's checkout.
        kind: refuse if the model turns out to be of another kind.
        force: overwrite files that somebody changed.
        dry_run: decide everything, write nothing.

    Raises:
        BadInput: a bad name, an unknown source or target, or a model that the target's templates do not cover.
    """
    _check_name(name)
    _check_into(into)
    request = _request(name, source, style, into, transformers)
    if kind is not None and kind != request.profile.kind:
        raise BadInput(f"{request.profile.model_type} is of kind '{request.profile.kind}', not '{kind}'")
    plan = get_target(target).plan(request)
    files = render(plan, target, "text")
    answers = {
        "name": name,
        "source": source,
        "target": target,
        "style": style,
        "transformers": request.model.library.version,
    }
    base = next(path for path in files if path.endswith(f"{name}/__init__.py")).rpartition("/")[0]
    answers_path = f"{base}/{ANSWERS}"
    known = load_answers(inside(into, answers_path)).files
    files[answers_path] = dump_answers(answers, files)
    changes = compare(into, files, _edited(into, plan), {**known, **_own(into, answers_path)}, force)
    refused = tuple(_refusals(changes))
    if not refused and not dry_run:
        write(into, changes)
    return Scaffold(into, plan, tuple(changes), refused)


def _request(name: str, source: str, style: Style, into: Path, transformers: Path | None) -> Request:
    library = find_library("transformers", transformers)
    found = read_source_argument(source, library)
    model = upstream_model(library, model_config(found, library))
    verdict = judge(read_checkpoint(found.weights), model) if found.weights is not None else None
    if verdict is not None and not verdict.ok:
        reasons = "; ".join(finding.message for finding in verdict.findings) or verdict.verdict
        raise BadInput(f"the checkpoint does not fit the model: {reasons}", f"see omni-kit check-layout {source}")
    return Request(name, source, into, style, model, profile(model), verdict)


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise BadInput(f"'{name}' is no Python identifier", "use letters, digits and underscores: my_model")


def _check_into(into: Path) -> None:
    if into.exists() and not into.is_dir():
        raise BadInput(f"{into} is a file", "give a directory with --into")


def _edited(into: Path, plan: Plan) -> dict[str, str]:
    texts: dict[str, str] = {}
    for edit in plan.edits:
        path = inside(into, edit.path)
        if not path.is_file():
            raise BadInput(f"{path} does not exist", "is --into the root of a checkout?")
        texts[edit.path] = apply_edit(texts.get(edit.path) or path.read_text(encoding="utf-8"), edit)
    return texts


def _own(into: Path, answers_path: str) -> Mapping[str, str]:
    """The answers file itself may always be rewritten: it records what the others are."""
    path = into / answers_path
    return {answers_path: digest(path.read_text(encoding="utf-8"))} if path.is_file() else {}


def _refusals(changes: list[FileChange]) -> list[str]:
    return [
        f"{change.path} exists with different content that omni-kit did not write; --force overwrites it"
        for change in changes
        if change.action == "conflict"
    ]
