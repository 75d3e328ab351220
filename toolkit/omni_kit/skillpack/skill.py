"""Skills in the Agent Skills format: a directory with SKILL.md, YAML front matter and Markdown."""

import re
from dataclasses import dataclass
from pathlib import Path

from omni_kit.documents import DocumentError, read_yaml
from omni_kit.errors import BadInput
from omni_kit.resources import resource_dir

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_FENCE = re.compile(r"^```(?:bash|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")
_MAX_NAME, _MAX_DESCRIPTION = 64, 1024  # limits of the Agent Skills format


@dataclass(frozen=True)
class Skill:
    """One skill.

    Attributes:
        name: equals its directory's name.
        description: when an agent should load it.
        body: the Markdown after the front matter.
    """

    name: str
    description: str
    body: str
    path: Path

    @property
    def lines(self) -> int:
        """Return the number of lines of the file."""
        return self.path.read_text(encoding="utf-8").count("\n")

    def commands(self) -> list[str]:
        """Return the commands of its shell blocks, continuation lines joined, comments left out."""
        joined = "\n".join(_FENCE.findall(self.body)).replace("\\\n", " ")
        lines = (line.split("  #")[0].strip() for line in joined.splitlines())
        return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def load_skills(root: Path | None = None) -> list[Skill]:
    """Return all skills of the pack, by name.

    Raises:
        BadInput: a SKILL.md breaks the format.
    """
    folder = root or resource_dir("skills")
    return [read_skill(path) for path in sorted(folder.glob("*/SKILL.md"))]


def read_skill(path: Path) -> Skill:
    """Read one SKILL.md.

    Raises:
        BadInput: no front matter, or a name or description that the format does not allow.
    """
    match = _FRONT_MATTER.match(path.read_text(encoding="utf-8"))
    if match is None:
        raise BadInput(f"{path} has no YAML front matter", "start it with ---, name, description, ---")
    try:
        meta = read_yaml(match.group(1))
    except DocumentError as error:
        raise BadInput(f"{path} has damaged front matter: {error}") from error
    name, description = (str((meta or {}).get(key, "")) for key in ("name", "description"))
    if not _NAME.match(name) or len(name) > _MAX_NAME or name != path.parent.name:
        raise BadInput(f"{path}: name '{name}' must be lower-case words with hyphens, and the directory's name")
    if not 0 < len(description) <= _MAX_DESCRIPTION:
        raise BadInput(f"{path}: the description must have 1 to {_MAX_DESCRIPTION} characters")
    return Skill(name, description, match.group(2), path)
