"""Omissions of a generated file: code that only produces speech, which training never builds."""

import ast

from omni_kit.patchgen.scopes import scopes_of
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.speech import speech_classes, speech_configs


def speech_only(model: UpstreamModel) -> tuple[str, ...]:
    """Return the definitions to exclude, in upstream's order.

    They are the classes that only produce speech, what is built from them, and what nothing else uses. A base class of
    what stays is kept with all that it names, as where it initialises them. A model that is built from them itself
    keeps all.
    """
    source = model.source
    gone = set(speech_classes(source.classes, speech_configs(model.config.cls)))
    if not gone:
        return ()
    names = [node.name for node in source.tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    users = scopes_of(source.text).users_by_definition()
    while fresh := {one for name in gone for one in users.get(name, ()) if one in names} - gone:
        gone |= fresh
    if model.class_name in gone:
        return ()
    while rescued := {base for name in names if name not in gone for base in _bases(source, name)} & gone:
        while fresh := {one for one in names if users.get(one, set()) & rescued} - rescued:
            rescued |= fresh
        gone -= rescued
    kept = [name for name in names if name != model.class_name]
    while fresh := {name for name in kept if name not in gone and _only(users.get(name, set()) - {name}, gone)}:
        gone |= fresh
    return tuple(name for name in names if name in gone)


def _bases(source: SourceFile, name: str) -> list[str]:
    node = source.classes.get(name)
    return [dotted(base) or "" for base in node.bases] if node is not None else []


def _only(users: set[str], gone: set[str]) -> bool:
    return bool(users) and users <= gone
