"""Files, folders and other skills that a skill names."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.skills.examples import HEAD
from omni_checkers.skills.facts.installed import Installed, normalised
from omni_checkers.skills.facts.mentions import FILE, MentionedPath, mentioned_paths
from omni_checkers.skills.subject import Subject

_FOLDERS = {"scripts", "references", "assets"}
_HOMES = {"home", "Users", "root", "work", "workspace", "mnt", "data", "srv", "nfs", "scratch", "private", "Volumes"}
_EVERYWHERE = {"dev", "tmp", "etc", "proc", "sys", "usr", "bin", "sbin", "lib", "var", "path", "api"}
_ABSOLUTE = re.compile(
    r"(?:^|(?<=[\s\"'(=,\[`]))(/(?P<first>[\w.-]+)/[\w./<>{}*@+-]+)|\b([A-Za-z]:\\Users\\[^\s`\"']+)"
)
_ROUTE = re.compile(r"https?:|\bcurl\b|\b(?:GET|POST|PUT|DELETE|PATCH)\b|\b(?:endpoint|route)s?\b", re.IGNORECASE)
_KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
_IN_SKILLS = re.compile(r"(?:^|/)skills/([a-z0-9]+(?:-[a-z0-9]+)*)(?:/(.+))?$")
_SUBMODULES = re.compile(r"(?:^|/)(?:my|your|new|some|example|foo|bar)_?\w*")
_NEAR = 0.85
_DEEPEST = 2
"""Depth of a skill's folders; files deeper below scripts/ belong to a repository."""


class MissingFile(Rule):
    """Link and name only files that the skill contains, in scripts/, references/, assets/ or other folders.

    Links are relative to their page; paths in code are relative to the skill's folder.

    Why: the agent runs a script that does not exist, or continues without the page that has the details.

    Fine when: never.
    """

    id = "SKL201"
    name = "missing-file"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}See [the details](references/details.md).\n"},
        {"SKILL.md": f"{HEAD}```bash\npython scripts/add.py 1 2\n```\n"},
        {"SKILL.md": f"{HEAD}Read `references/details.md` first.\n"},
    )
    GOOD = (
        {
            "SKILL.md": f"{HEAD}See [the details](references/details.md); run `scripts/add.py`.\n",
            "references/details.md": "# Details\n",
            "scripts/add.py": "print(1 + 2)\n",
        },
    )

    def check(self, skill: Subject, checkout: Path | None = None) -> Findings:
        own = _FOLDERS | {path.name for path in skill.path.iterdir() if path.is_dir()}
        for said in mentioned_paths(skill):
            text = said.text.removeprefix("./")
            if said.kind == "link":
                places = [said.path.parent / text]
            elif text.partition("/")[0] in own and text.count("/") <= _DEEPEST:
                places = [skill.path / text, said.path.parent / text, *([checkout / text] if checkout else [])]
            else:
                continue
            if not text.startswith("/") and _inside(skill, places[0]) and not any(place.exists() for place in places):
                yield Finding(f"'{said.text}' does not exist", said.path, said.line)


class OutsideFile(Rule):
    """Keep every path inside the skill's folder.

    Why: installation copies only the folder, so the agent finds nothing, or another file, at the path.

    Fine when: never; copy the page into references/, or refer to the other skill by name.
    """

    id = "SKL202"
    name = "path-outside-the-skill"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}See [the other](../sibling/SKILL.md).\n"},
        {"SKILL.md": f"{HEAD}Read `../../docs/adding.md`.\n"},
    )
    GOOD = ({"SKILL.md": f"{HEAD}See [above](#example).\n"},)

    def check(self, skill: Subject) -> Findings:
        for said in mentioned_paths(skill):
            if ".." not in Path(said.text).parts or said.text.startswith("/"):
                continue
            place = said.path.parent / said.text
            if not _inside(skill, place) and (said.kind != "shell" or place.exists()):
                yield Finding(f"'{said.text}' leads out of the skill's folder", said.path, said.line)


class AbsolutePath(Rule):
    """Do not use absolute paths of one machine.

    Paths under home, work or data folders are errors, other absolute paths warnings. The rule accepts folders that
    every machine has (such as /tmp, /usr and /dev), routes of a server and targets inside a container.

    Why: the path exists only on the author's machine.

    Fine when: the path belongs to a container or machine that the skill is about; suppress the finding with that
    reason.
    """

    id = "SKL203"
    name = "absolute-path"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}```bash\npython /home/me/tools/add.py\n```\n"},
        {"SKILL.md": f"{HEAD}The tables are in `/mnt/tables/sums.csv`.\n"},
        {"SKILL.md": f"{HEAD}See [the details](/srv/skills/details.md).\n"},
    )
    GOOD = ({"SKILL.md": f"{HEAD}Write to `/tmp/sums.csv`; `POST /v1/sums/new` answers.\n"},)

    def check(self, skill: Subject) -> Findings:
        pages = [(page.path, page.text) for page in skill.pages]
        scripts = [(snippet.path, snippet.text) for snippet in skill.snippets if snippet.whole]
        for path, text in (*pages, *scripts):
            for number, line in enumerate(text.splitlines(), 1):
                for match in _ABSOLUTE.finditer(line):
                    first = match["first"]
                    certain = first is None or first in _HOMES
                    if certain or _is_of_a_machine(match[0], first, line):
                        severity = Severity.error if certain else Severity.warning
                        yield Finding(f"'{match[0]}' is a path of one machine", path, number, severity=severity)


def _is_of_a_machine(path: str, first: str, line: str) -> bool:
    """Return whether an absolute path is likely one of a machine: it names a file or has many parts, and is not a
    server's route.
    """
    elsewhere = first in _EVERYWHERE or re.fullmatch(r"v\d+", first) or _ROUTE.search(line)
    return not elsewhere and (path.rstrip("/").count("/") > 2 or FILE.search(path) is not None)


class MissingSibling(Rule):
    """Name only skills that the pack contains.

    A skill's name is a hyphenated name next to the word "skill", in a column about skills, or in a path under skills/.
    A name that nearly equals a skill of the pack, or shares a prefix with several, counts too.

    Why: the agent looks for a skill that it does not have, and stops or improvises.

    Fine when: another pack contains the skill and the text names the pack; suppress the finding with that reason.
    """

    id = "SKL204"
    name = "missing-sibling"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}For products use the `multiply-numbers` skill.\n"},
        {
            "SKILL.md": f"{HEAD}Continue with `draw-curves`.\n",
            "../draw-curve/SKILL.md": "---\nname: draw-curve\ndescription: Draws a function.\n---\n# Draw\n",
        },
        {"SKILL.md": f"{HEAD}| for | skill |\n|---|---|\n| products | `multiply-numbers` |\n"},
    )
    GOOD = (
        {
            "SKILL.md": f"{HEAD}For pictures use the skill `draw-curve`.\n",
            "../draw-curve/SKILL.md": "---\nname: draw-curve\ndescription: Draws a function.\n---\n# Draw\n",
        },
    )

    def check(self, skill: Subject, pack: dict[str, Subject]) -> Findings:
        known = {*pack, skill.path.name}
        for name, path, line in (*self._named(skill, known), *self._in_paths(skill, pack)):
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                yield Finding(f"this pack has no skill '{name}'{hint}", path, line)

    def _in_paths(self, skill: Subject, pack: dict[str, Subject]) -> Iterator[tuple[str, Path, int]]:
        for said in mentioned_paths(skill):
            if match := _IN_SKILLS.search(said.text):
                name, rest = match[1], match[2]
                inner = pack[name].path / rest if rest and name in pack else None
                yield (name if inner is None or inner.exists() else f"{name}/{rest}"), said.path, said.line

    def _named(self, skill: Subject, known: set[str]) -> Iterator[tuple[str, Path, int]]:
        for page in skill.pages:
            for span in page.code:
                if _KEBAB.fullmatch(span.text) and (
                    re.search(r"\bskills?\b", span.column, re.IGNORECASE)
                    or _beside_the_word(span.text, span.around)
                    or _looks_like_one(span.text, known)
                ):
                    yield span.text, page.path, span.line
        for match in _KEBAB.finditer(skill.description):
            if _looks_like_one(match[0], known) or _beside_the_word(match[0], skill.description):
                yield match[0], skill.file, skill.line_of("description")


def _beside_the_word(name: str, text: str) -> bool:
    quoted = rf"`?{re.escape(name)}`?"
    return re.search(rf"\bskills?:?\s+{quoted}(?![\w-])|(?<![\w-]){quoted}\s+skills?\b", text) is not None


def _looks_like_one(name: str, known: set[str]) -> bool:
    """Nearly the name of one, or one that begins as several do and is not the beginning itself."""
    if name in known:
        return True
    if any(other.startswith(f"{name}-") for other in known):
        return False
    same = [other for other in known if other.partition("-")[0] == name.partition("-")[0]]
    if len(same) > 1 and name.count("-") > 1:
        return True
    return bool(difflib.get_close_matches(name, known, 1, _NEAR))


class RepositoryPath(Rule):
    """Name only repository paths that exist in the checkout or in the installed package.

    With `--checkout`, the rule checks paths whose first folder exists and paths with a file name. Without it, it looks
    up paths after the name of an installed package; that finding is a warning, because packages may omit tests and
    documentation.

    Why: the agent searches for the file, opens another one of that name, or creates it in the wrong place.

    Fine when: the skill instructs the agent to create the path; write it with a placeholder, as <name>.
    """

    id = "SKL205"
    name = "repository-path"
    target = "skill"
    BAD = ({"SKILL.md": f"{HEAD}Register it in `omni_kit/targets/no_such_file.py`.\n"},)
    GOOD = ({"SKILL.md": f"{HEAD}Register it in `omni_kit/targets/registry.py`, as `omni_kit/targets/<name>.py`.\n"},)

    def check(self, skill: Subject, installed: Installed, checkout: Path | None = None) -> Findings:
        paths = [said for said in mentioned_paths(skill) if said.kind == "code" and not said.text.startswith(".")]
        made = {said.text.partition("/")[0] for said in mentioned_paths(skill) if said.kind == "shell"}
        if not paths:
            raise NotApplicable("it names no path")
        for said in paths:
            if _SUBMODULES.search(said.text) or _IN_SKILLS.search(said.text) or (skill.path / said.text).exists():
                continue
            if checkout is not None:
                if _missing(checkout, said, made):
                    yield Finding(f"'{said.text}' is not in the checkout", said.path, said.line)
            elif (package := _missing_of_package(said, installed)) is not None:
                message = f"'{said.text}' is not in the installed {package}"
                yield Finding(message, said.path, said.line, severity=Severity.warning)


def _missing(checkout: Path, said: MentionedPath, made: set[str]) -> bool:
    first = said.text.partition("/")[0]
    if (checkout / said.text).exists() or first in _FOLDERS:
        return False
    if (checkout / first).is_dir():
        return True
    if not FILE.search(said.text) or first in made:
        return False
    return not any(path.as_posix().endswith(f"/{said.text}") for path in checkout.rglob(Path(said.text).name))


def _missing_of_package(said: MentionedPath, installed: Installed) -> str | None:
    """Return the package that a path names a file of which is not there."""
    parts = [part for part in said.text.split("/") if part]
    for number, part in enumerate(parts[:-1]):
        is_package = normalised(part) in installed.versions and number < 3
        module = installed.module(part) if is_package else None
        if module is not None and module.folder is not None and (FILE.search(said.text) or said.text.endswith("/")):
            below = module.folder.joinpath(*parts[number + 1 :])
            is_ours = (module.folder / parts[number + 1]).exists() or len(parts) > number + 2
            return part if is_ours and not below.exists() else None
    return None


def _inside(skill: Subject, place: Path) -> bool:
    return place.resolve().is_relative_to(skill.path.resolve())
