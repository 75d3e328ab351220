"""The manifests with which agents install a pack."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.skills.examples import HEAD
from omni_checkers.skills.subject import Subject
from omni_kit.documents import DocumentError, read_json

_KEBAB = r"[a-z0-9]+(?:[-.][a-z0-9]+)*"
_VERSION = r"\d+\.\d+\.\d+(?:-[\w.-]+)?(?:\+[\w.-]+)?"
_Check = tuple[type | tuple[type, ...], str]
_PLUGIN: Mapping[str, _Check] = {
    "name": (str, _KEBAB), "version": (str, _VERSION), "description": (str, r".+"), "author": ((dict, str), ""),
    "homepage": (str, r"https?://.+"), "repository": ((str, dict), ""), "license": (str, r".+"), "keywords": (list, ""),
    "skills": ((str, list), ""), "commands": ((str, list), ""), "agents": ((str, list), ""),
    "hooks": ((str, dict, list), ""), "mcpServers": ((str, dict, list), ""),
}  # fmt: skip
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "github": ("repo",), "url": ("url",), "git": ("url",), "git-subdir": ("url", "path"), "npm": ("package",),
    "pip": ("package",), "local": ("path",),
}  # fmt: skip
"""Kind of a plugin's source -> the strings that it requires."""
_MANIFESTS: Mapping[str, tuple[tuple[str, ...], Mapping[str, _Check]]] = {
    "plugin.json": (("name",), _PLUGIN),
    ".claude-plugin/plugin.json": (("name",), _PLUGIN),
    ".codex-plugin/plugin.json": (("name", "version"), _PLUGIN),
    ".claude-plugin/marketplace.json": (
        ("name", "owner", "plugins"),
        {"name": (str, _KEBAB), "owner": (dict, ""), "plugins": (list, ""), "metadata": (dict, "")},
    ),
    "gemini-extension.json": (
        ("name", "version"),
        {"name": (str, r"[a-z0-9]+(?:-[a-z0-9]+)*"), "version": (str, _VERSION), "description": (str, ""),
         "mcpServers": (dict, ""), "contextFileName": ((str, list), ""), "excludeTools": (list, "")},
    ),
}  # fmt: skip
"""File -> the fields that agents require, and the type and form of each known one (agents' documentation, 2026)."""


class Manifest(Rule):
    """Write each manifest of a pack as the agent that reads it requires.

    The rule reads `plugin.json` (also in .claude-plugin and .codex-plugin), `.claude-plugin/marketplace.json` and
    `gemini-extension.json` in the skills folder and its parents up to the repository's root.

    Why: the agent rejects the whole pack, or skips the part that it cannot read.

    Fine when: never.
    """

    id = "SKL107"
    name = "manifest"
    target = "skill"
    BAD = (
        {"SKILL.md": HEAD, "../plugin.json": '{"name": "My Plugin"}'},
        {"SKILL.md": HEAD, "../.claude-plugin/marketplace.json": '{"name": "sums", "plugins": {}}'},
        {"SKILL.md": HEAD, "../gemini-extension.json": '{"name": "sums"}'},
        {"SKILL.md": HEAD, "../plugin.json": '{"name": "sums", "mcpServers": {"sums": {"args": []}}}'},
        {
            "SKILL.md": HEAD,
            "../.claude-plugin/marketplace.json": '{"name": "sums", "owner": {"name": "me"}, "plugins": '
            '[{"name": "more-sums", "source": {"source": "github"}}]}',
        },
        {"SKILL.md": HEAD, "../plugin.json": '{"name": "sums", "skills": "./no-such-folder/"}'},
    )
    GOOD = ({"SKILL.md": HEAD, "../plugin.json": '{"name": "sums", "version": "1.0.0", "skills": "./"}'},)

    def check(self, skill: Subject, pack: dict[str, Subject]) -> Findings:
        if pack and skill.path.name != min(pack):
            raise NotApplicable("the manifests are checked with the first skill of the pack")
        found = [(root, file) for root in _roots(skill.path) for file in _MANIFESTS if (root / file).is_file()]
        if not found:
            raise NotApplicable("the pack has no manifest")
        for root, file in found:
            path = root / file
            yield from (Finding(message, path) for message in _wrong(root, path, *_MANIFESTS[file]))


def _roots(skill: Path) -> list[Path]:
    """Return the folder of the skills and those above it, up to the repository's root or at most three."""
    above = list(skill.parents)
    top = next((number for number, place in enumerate(above) if (place / ".git").exists()), 2)
    return above[: top + 1]


def _wrong(root: Path, path: Path, required: tuple[str, ...], fields: Mapping[str, _Check]) -> Iterator[str]:
    try:
        data = read_json(path.read_text(encoding="utf-8"))
    except (DocumentError, UnicodeDecodeError) as error:
        yield f"it is not JSON: {error}"
        return
    if not isinstance(data, dict):
        yield "it is not an object"
        return
    for name in required:
        if name not in data:
            yield f"the required field '{name}' is missing"
    yield from _fields(data, fields)
    yield from _parts(root, data)


def _fields(data: dict[str, Any], fields: Mapping[str, _Check]) -> Iterator[str]:
    for name, value in data.items():
        kinds, form = fields.get(name, (object, ""))
        if not isinstance(value, kinds):
            yield f"'{name}' has the wrong type: {type(value).__name__}"
        elif form and isinstance(value, str) and not re.fullmatch(form, value):
            yield f"'{name}' has a form that agents reject: '{value[:60]}'"


def _parts(root: Path, data: dict[str, Any]) -> Iterator[str]:
    if "author" in data and isinstance(data["author"], dict) and not isinstance(data["author"].get("name"), str):
        yield "'author' has no name"
    if isinstance(data.get("owner"), dict) and not isinstance(data["owner"].get("name"), str):
        yield "'owner' has no name"
    if isinstance(data.get("keywords"), list) and not all(isinstance(one, str) for one in data["keywords"]):
        yield "'keywords' has an entry that is not a text"
    for name in ("skills", "commands", "agents", "hooks", "mcpServers"):
        value = data.get(name)
        for place in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            if isinstance(place, dict) and name in ("hooks", "mcpServers"):
                continue
            if not isinstance(place, str) or not place.startswith("./") or ".." in Path(place).parts:
                yield f"'{name}' must be a path below the manifest's root that begins with './': '{place}'"
            elif not (root / place).exists():
                yield f"'{name}' names '{place}', which does not exist"
    servers = data.get("mcpServers")
    for name, server in (servers if isinstance(servers, dict) else {}).items():
        yield from (f"the MCP server '{name}' {what}" for what in _wrong_server(server))
    plugins = data.get("plugins")
    names = [one.get("name") for one in plugins if isinstance(one, dict)] if isinstance(plugins, list) else []
    for number, one in enumerate(plugins if isinstance(plugins, list) else []):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or "source" not in one:
            yield f"plugin {number + 1} needs a name and a source"
            continue
        if names.index(one["name"]) < number:
            yield f"two plugins have the name '{one['name']}'"
        yield from (
            f"plugin {number + 1}: {what}" for what in (*_fields(one, _PLUGIN), *_wrong_source(root, one["source"]))
        )


def _wrong_server(server: object) -> Iterator[str]:
    """Yield what is wrong with a server of the Model Context Protocol: a command with arguments, or an address."""
    if not isinstance(server, dict) or not any(
        isinstance(server.get(key), str) for key in ("command", "url", "httpUrl")
    ):
        yield "needs a command or a url"
        return
    if not isinstance(server.get("args", []), list) or not all(isinstance(one, str) for one in server.get("args", [])):
        yield "has 'args' that are not a list of strings"
    if not isinstance(env := server.get("env", {}), dict) or not all(isinstance(one, str) for one in env.values()):
        yield "has an 'env' that does not map names to strings"


def _wrong_source(root: Path, source: object) -> Iterator[str]:
    """Yield what is wrong with the source of a marketplace's plugin."""
    if isinstance(source, str):
        if not source.startswith("./") or ".." in Path(source).parts:
            yield f"the source must be a path that begins with './' or an object: '{source}'"
        elif not (root / source).exists():
            yield f"the source '{source}' does not exist"
    elif not isinstance(source, dict) or source.get("source") not in _SOURCES:
        yield f"the source must be a path, or an object with a 'source' of {', '.join(_SOURCES)}"
    else:
        kind = str(source["source"])
        missing = [name for name in _SOURCES[kind] if not isinstance(source.get(name), str)]
        yield from (f"the source of kind '{kind}' needs the string '{name}'" for name in missing)
