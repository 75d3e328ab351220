"""From a SOURCE to the files of an integration."""

import ast
import importlib.util
import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from omni_kit.errors import BadInput, Refusal
from omni_kit.files import check_name, inside
from omni_kit.formatting import InvalidPython
from omni_kit.layout import LayoutVerdict, judge, read_weights, refuse_original
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import parse_file
from omni_kit.record import ANSWERS, BASE, digest, dump_answers, dump_base, is_written, load_answers
from omni_kit.scaffold.render import left_open, render, templates_of, with_marks
from omni_kit.scaffold.write import FileChange, compare, read_existing, write
from omni_kit.targets.protocol import (
    ConfirmsByRunning,
    IntegrationPlan,
    NamesClass,
    Request,
    Style,
    Target,
    WritesTraining,
    kind_taken,
    reads_of,
    scaffolded,
    variants_of,
)
from omni_kit.targets.registry import get_target, targets
from omni_kit.targets.versions import library_for, pins
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.subject import Subject, open_source

_README = "README.md"
_COMMAND = re.compile(r"(?:^|(?<=`))omni-kit \S+ [^`#\n]*?(?=\s*(?:#|`|$))", re.MULTILINE)


@dataclass(frozen=True)
class Scaffold:
    """The result of new-model.

    Attributes:
        changes: every file with what was, or would be, done to it.
        refused: why nothing was written; empty when all is well.
        notes: what to know about what was read: of several things that SOURCE could mean, which; the versions.
    """

    root: Path
    plan: IntegrationPlan
    changes: tuple[FileChange, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...] = ()


def new_model(
    name: str,
    source: str,
    *,
    target: str | None = None,
    style: Style = "plugin",
    into: Path = Path(),
    kind: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    transformers: Path | None = None,
    diffusers: Path | None = None,
    kernels: Mapping[str, str] | None = None,
    class_name: str = "",
) -> Scaffold:
    """Make an integration of the model at `source`.

    Args:
        name: the integration's name: a Python identifier.
        source: SOURCE of the command line.
        target: the framework; None if only one scaffolds models of this kind.
        style: "plugin" for a package of its own below `into`, "in-tree" when `into` is the framework's checkout.
        kind: refuse if the model turns out to be of another kind; or the way of integrating it.
        force: overwrite files that somebody changed; write a plugin that replaces what the framework has itself.
        dry_run: decide everything, write nothing.
        transformers, diffusers: unpacked libraries to read instead of the installed ones.
        kernels: setting -> kernel, as they were measured for such a model; a training file is written with them.
        class_name: of the model's class; empty for the target's own choice.

    Raises:
        BadInput: a bad name, an unknown source or target.
        Refusal: an integration that would not be right: a kind that the target does not scaffold, a checkpoint that
            does not fit, a model that cannot be finished; a plugin that replaces what the framework has, without
            `force`.
    """
    check_name(name)
    _check_into(into)
    subject = open_source(source, transformers=transformers, diffusers=diffusers)
    if style == "plugin":
        _check_package(name, into, subject.library)
    libraries, notes = _fitting_libraries(subject, target, kind, into, transformers, diffusers)
    plan, files, edited = draft(
        name,
        source,
        target=target,
        style=style,
        into=into,
        kind=kind,
        kernels=kernels,
        class_name=class_name,
        run=not dry_run,
        **libraries,
    )
    if plan.replaces and not force:
        raise Refusal(plan.replaces, "use that, or pass --force for a plugin that replaces it")
    answers_path, base_path = (f"{plan.base}/{own}" for own in (ANSWERS, BASE))
    known = {**load_answers(inside(into, answers_path)).files, **_own(into, answers_path, base_path)}
    known |= {path: digest(text) for path in plan.merged if (text := read_existing(into, path)) is not None}
    changes = compare(into, files, edited, known, force)
    refused = tuple(_refusals(changes))
    if not refused and not dry_run:
        write(into, changes)
    return Scaffold(into, plan, tuple(changes), refused, (*subject.notes, *notes))


def _fitting_libraries(
    subject: Subject,
    target: str | None,
    kind: str | None,
    into: Path,
    transformers: Path | None,
    diffusers: Path | None,
) -> tuple[dict[str, Path | None], tuple[str, ...]]:
    """Return the libraries to read: those that were given, else the version that the target takes; and notes about
    them.
    """
    given: dict[str, Path | None] = {"transformers": transformers, "diffusers": diffusers}
    refuse_original(subject)
    _check_kind(kind)
    name = subject.library.name
    if name not in given:
        return given, ()
    owner = get_target(target) if target else _only_taker(subject, kind)
    if given[name] is not None:
        read = subject.library.version
        return given, tuple(
            pin.against(read, "is read") for pin in pins(owner) if pin.library == name and not pin.takes(read)
        )
    found, note = library_for(owner, name, (into,))
    return {**given, name: found}, (note,) if note else ()


def _readme(text: str, libraries: Mapping[str, Path | None]) -> str:
    """Return a README whose commands read the given libraries."""
    return _COMMAND.sub(lambda found: _reading(found.group(), libraries), text)


def _reading(command: str, libraries: Mapping[str, Path | None]) -> str:
    """Return a command with the options that make it read the given libraries, where it has them."""
    name_of = command.split()[1]
    if name_of not in ("patchgen", "parity"):
        return command
    options = [f"--{name} {shlex.quote(str(path))}" for name, path in libraries.items() if path is not None]
    patching = name_of == "patchgen"
    return " ".join([command, *(one for one in options if not patching or one.startswith("--transformers"))])


def draft(
    name: str,
    source: str,
    *,
    target: str | None,
    style: Style,
    into: Path,
    kind: str | None = None,
    transformers: Path | None = None,
    diffusers: Path | None = None,
    kernels: Mapping[str, str] | None = None,
    class_name: str = "",
    run: bool = False,
) -> tuple[IntegrationPlan, dict[str, str], dict[str, str]]:
    """Return the plan of an integration, its own files by path, and the framework's files after the edits by path.

    Args:
        run: run upstream's code to confirm decisions, where the target can.

    Raises:
        BadInput: as `new_model`.
    """
    subject = open_source(source, transformers=transformers, diffusers=diffusers)
    refuse_original(subject)
    _check_kind(kind)
    owner = get_target(target) if target else _only_taker(subject, kind)
    taken = _taken(owner, subject, kind)
    handler = owner.kinds[taken]
    way = kind if kind in variants_of(owner, taken) and kind else ""
    if kernels and not isinstance(handler, WritesTraining):
        raise BadInput(f"{owner.name} writes no training file for models of kind '{taken}'", "leave out --kernels")
    if class_name and not isinstance(handler, NamesClass):
        raise BadInput(f"{owner.name} keeps the class names of models of kind '{taken}'", "leave out --class-name")
    if class_name and not (class_name.isidentifier() and class_name[0].isupper()):
        raise BadInput(f"'{class_name}' is not the name of a class", "pass one like FluxTransformer2DModel")
    request = Request(name, into, style, _verdict(subject), way, dict(kernels or {}), class_name, again=not run)
    if run and isinstance(handler, ConfirmsByRunning):
        handler.prepare()
    plan = handler.plan(subject, request)
    if run and plan.confirm is not None:
        plan = plan.confirm()
    if not any(file.path.startswith(f"{plan.base}/") for file in plan.files):
        raise BadInput(f"{owner.name} plans no file in {plan.base}, which it calls the integration's directory")
    plan, files = rendered(plan, templates_of(owner, handler.templates))
    edited = _edited(into, plan)
    if plan.derived is not None:
        files |= render(plan.derived({**edited, **files}), templates_of(owner), plan.rules)
    read = {"transformers": transformers, "diffusers": diffusers}
    files = {path: _readme(text, read) if path.endswith(_README) else text for path, text in files.items()}
    files = with_marks(files, plan.todo)
    commands = tuple(_reading(command, read) for command in plan.next)
    elsewhere = (one for one in plan.todo if not one.path.endswith(".py") or one.path not in files)
    plan = replace(plan, todo=(*elsewhere, *left_open(files)), next=commands)
    answers = {"name": name, "source": source, "target": owner.name, "style": style}
    answers = {**answers, subject.library.name: subject.library.version, **({"kind": kind} if kind else {})}
    answers |= {"class_name": class_name} if class_name else {}
    answers |= {"kernels": json.dumps(request.kernels)} if request.kernels else {}
    own = {f"{plan.base}/{ANSWERS}": dump_answers(answers, files), f"{plan.base}/{BASE}": dump_base(files)}
    return plan, {**files, **own}, edited


def rendered(plan: IntegrationPlan, templates: Path) -> tuple[IntegrationPlan, dict[str, str]]:
    """Return the texts of a plan's files; and the plan, simpler where a part of it is not valid Python."""
    try:
        return plan, render(plan.files, templates, plan.rules)
    except InvalidPython as error:
        if plan.simpler is None:
            raise
        plan = plan.simpler(error.message)
        return plan, render(plan.files, templates, plan.rules)


def _check_package(name: str, into: Path, library: Library) -> None:
    """A plugin is imported by its name: it must hide no package that is installed, or that the library looks for."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    own = (into / name).resolve()
    places = [place for place in (found.origin, *(found.submodule_search_locations or ())) if place] if found else []
    installed = found is not None and not any(Path(place).resolve().is_relative_to(own) for place in places)
    if installed or name in _optional_packages(library):
        known = "is an installed package" if installed else f"is a package that {library.name} uses if it is there"
        raise BadInput(f"'{name}' {known}, which the plugin would shadow", f"choose another name: my_{name}")


def _optional_packages(library: Library) -> set[str]:
    """Return the packages that a library looks for by name before it imports them."""
    file = library.root / "utils" / "import_utils.py"
    if not file.is_file():
        return set()
    calls = (node for node in ast.walk(parse_file(file)[1]) if isinstance(node, ast.Call))
    asked = (call for call in calls if ast.unparse(call.func) == "_is_package_available")
    return {str(call.args[0].value) for call in asked if call.args and isinstance(call.args[0], ast.Constant)}


def _check_into(into: Path) -> None:
    if into.exists() and not into.is_dir():
        raise BadInput(f"{into} is a file", "pass a directory with --into")


def _check_kind(kind: str | None) -> None:
    ways = [way for target in targets().values() for one in scaffolded(target) for way in variants_of(target, one)]
    if kind is not None and kind not in {*Kind, *ways}:
        raise BadInput(f"unknown kind '{kind}'", f"one of {', '.join(dict.fromkeys([*Kind, *ways]))}")


def _only_taker(subject: Subject, kind: str | None) -> Target:
    takers: list[Target] = []
    for one in subject.kinds:  # what it is comes before what it can also be taken for
        takers = takers or [target for target in targets().values() if one in _wanted(target, subject, kind)]
    if not takers and kind is not None:
        raise Refusal(f"{subject.profile.model_type} is of kind '{subject.kind}', not '{kind}'")
    if not takers:
        every = {kind: None for target in targets().values() for kind in scaffolded(target)}
        raise Refusal(
            f"{subject.profile.model_type} is of kind '{subject.kind}', which no target scaffolds",
            _on_request(subject, every) or f"kinds that one does: {', '.join(every)}",
        )
    if len(takers) > 1:
        raise BadInput(
            f"several targets take models of kind '{subject.kind}'",
            f"choose with --target: {', '.join(target.name for target in takers)}",
        )
    return takers[0]


def _wanted(target: Target, subject: Subject, kind: str | None) -> list[Kind]:
    """Return the subject's kinds that a target scaffolds: all of them, or that which was asked for, by name or by its
    way.
    """
    every = dict.fromkeys((*subject.kinds, *(one for one in subject.kinds_on_request if one == kind)))
    able = [one for one in every if one in scaffolded(target)]
    found = [one for one in able if subject.library.name in reads_of(target, one)]
    return [one for one in found if kind in (None, one) or kind in variants_of(target, one)]


def _taken(target: Target, subject: Subject, kind: str | None) -> Kind:
    """Return the kind that a target takes a subject for."""
    if found := _wanted(target, subject, kind):
        return found[0]
    model_type, able = subject.profile.model_type, kind_taken(target, subject.kinds)
    read = reads_of(target, able) if able is not None else target.reads
    if (library := subject.library.name) not in read:
        raise Refusal(f"{model_type} is of {library}; {target.name} takes models of {', '.join(read)}")
    if able is not None and (ways := variants_of(target, able)):
        raise Refusal(f"{target.name} integrates models of kind '{able}' as {', '.join(ways)}, not as '{kind}'")
    if kind is not None and kind not in subject.kinds:
        raise Refusal(f"{model_type} is of kind '{subject.kind}', not '{kind}'")
    kinds = ", ".join(scaffolded(target)) or "no kind yet"
    raise Refusal(
        f"{model_type} is of kind '{subject.kind}'; {target.name} integrations are scaffolded for {kinds}",
        _on_request(subject, scaffolded(target)),
    )


def _on_request(subject: Subject, kinds: Collection[Kind]) -> str:
    """Return what a person may do about a kind that is not recognised; empty if there is nothing."""
    asked = next((one for one in subject.kinds_on_request if one in kinds), None)
    return f"{subject.profile.kind_evidence}; pass --kind {asked} if it denoises" if asked is not None else ""


def _verdict(subject: Subject) -> LayoutVerdict | None:
    """Return the layout of the given checkpoint; None if none was given."""
    if subject.weights is None:
        return None
    verdict = judge(read_weights(subject), subject.loaded)
    if not verdict.ok:
        reasons = "; ".join(finding.message for finding in verdict.findings) or verdict.verdict
        raise Refusal(
            f"the checkpoint does not fit the model: {reasons}",
            f"see omni-kit check-layout {shlex.quote(subject.given)}",
        )
    return verdict


def _edited(into: Path, plan: IntegrationPlan) -> dict[str, str]:
    texts: dict[str, str] = {}
    for edit in plan.edits:
        from omni_kit.scaffold.codemods import apply_edit  # which reads with libcst: a plugin need not wait for it

        text = texts.get(edit.path) or read_existing(into, edit.path)
        if text is None:
            raise BadInput(f"{into / edit.path} does not exist", "is --into the root of a checkout?")
        texts[edit.path] = apply_edit(text, edit)
    return texts


def _own(into: Path, *paths: str) -> Mapping[str, str]:
    """Return the files that record what the others are may be rewritten, as long as no person wrote them."""
    texts = {path: read_existing(into, path) for path in paths}
    return {
        path: digest(text)
        for path, text in texts.items()
        if text is not None and is_written(PurePosixPath(path).name, text)
    }


def _refusals(changes: list[FileChange]) -> list[str]:
    return [
        f"{change.path} exists with different content that omni-kit did not write; --force overwrites it"
        for change in changes
        if change.action == "conflict"
    ]
