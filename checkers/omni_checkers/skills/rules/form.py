"""Front matter and size, as the Agent Skills specification defines them."""

import re
from collections.abc import Iterator

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.skills.subject import Subject
from omni_kit.errors import BadInput

FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
LONGEST_NAME, LONGEST_DESCRIPTION, LONGEST_COMPATIBILITY = 64, 1024, 500
MOST_LINES, MOST_TOKENS, CHARACTERS_OF_A_TOKEN = 300, 4000, 4
COMPETING = 0.5
"""Descriptions compete from this share of words on: those that both have, of all that either has."""
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HEAD = "---\nname: example\ndescription: Adds two numbers. Use when asked for a sum.\n"
LEAST_WORDS = 2
_WHEN = re.compile(
    r"\b(?:use|used|using|invoke|load|run|start|choose|trigger\w*|appl(?:y|ies))\b[^.]*?\b(?:when\w*|for|to|before|after|if|on|"
    r"in|with|during|as|here)\b|\b(?:when|whenever|if) (?:the user|you|users|asked|someone|an?|the|there|working)\b",
    re.IGNORECASE,
)
_VAGUE = frozenset(
    re.findall(
        r"\w+",
        """
        about companion done get gett go matter right situation way
        advanc agent ai all anyth appropriat assist assistanc awesom best better capabiliti capability cod
        code comprehensiv data develop developer easier easy efficiency efficient enabl enable enhanc ensur every
        everyday everyth expert expertis fast faster feature file flexibl general good great guidanc guide guidelin
        handl handle help helpful improv leverag mak manag modern more most necessary need new optimis optimiz other
        possibl power powerful practic problem productiv productivity professional project provid provide quality
        quick quickly relevant requir robust sens simple smart software solution solv someth state stuff support
        system task thing tool topic useful util utiliti valu various want work workflow
        """,
    )
)
"""Stems of words that fit any skill."""
_NOT = re.compile(r"(?:^|(?<=[.;!?])\s+)(?:do not use|not|never|don't use)\b[^.;!?]*", re.IGNORECASE)
_COMMON = frozenset(
    {"and", "are", "asked", "before", "does", "for", "from", "has", "have", "how", "into", "its", "not", "one", "skill"}
    | {"that", "the", "them", "then", "there", "this", "use", "used", "user", "what", "when", "whenever", "which"}
    | {"who", "with", "you", "your", "out", "find", "also", "any", "can", "over", "after", "such", "they"}
)


class FrontMatter(Rule):
    """Use only the specification's front matter fields, with their types.

    The fields are name and description (required), license, compatibility (1 to 500 characters), metadata (strings to
    strings) and allowed-tools (a string).

    Why: agents silently skip a skill whose front matter they cannot read.

    Fine when: never; put fields of a single agent into metadata.
    """

    id = "SKL101"
    name = "front-matter"
    target = "skill"
    BAD = (
        {"SKILL.md": "# Example\n"},
        {"SKILL.md": f"{_HEAD}author: me\n---\n# Example\n"},
        {"SKILL.md": f"{_HEAD}metadata: {{numbers: [1, 2]}}\n---\n# Example\n"},
    )
    GOOD = (
        {"SKILL.md": f"{_HEAD}---\n# Example\n"},
        {"SKILL.md": f"{_HEAD}license: MIT\nmetadata: {{author: me}}\n---\n# Example\n"},
    )

    def check(self, skill: Subject) -> Findings:
        try:
            meta = skill.meta
        except BadInput as error:
            return [Finding(error.message, skill.file)]
        return [Finding(message, skill.file, skill.line_of(field)) for field, message in self._wrong(meta)]

    def _wrong(self, meta: dict[str, object]) -> Iterator[tuple[str, str]]:
        for field in ("name", "description"):
            if field not in meta:
                yield field, f"the front matter has no {field}"
        for field, value in meta.items():
            if field not in FIELDS:
                yield field, f"'{field}' is not a field of the specification, which has {', '.join(FIELDS)}"
            elif field == "metadata":
                if not isinstance(value, dict) or not all(isinstance(v, str) for kv in value.items() for v in kv):
                    yield field, "metadata must map strings to strings: quote numbers and dates"
            elif not isinstance(value, str):
                yield field, f"{field} must be a string, not {type(value).__name__}"
        if isinstance(said := meta.get("compatibility"), str) and not 0 < len(said) <= LONGEST_COMPATIBILITY:
            yield "compatibility", f"compatibility has {len(said)} characters; 1 to {LONGEST_COMPATIBILITY} are allowed"


class Name(Rule):
    """Name the skill like its folder: lower-case words and digits with single hyphens, at most 64 characters.

    Why: agents find a skill by its folder and call it by its name. If the two differ, references from other skills and
    from users fail.

    Fine when: never.
    """

    id = "SKL102"
    name = "name-is-the-folder"
    target = "skill"
    BAD = (
        {"SKILL.md": "---\nname: another\ndescription: Adds numbers.\n---\n# Example\n"},
        {"SKILL.md": "---\nname: Example Skill\ndescription: Adds numbers.\n---\n# Example\n"},
    )
    GOOD = ({"SKILL.md": f"{_HEAD}---\n# Example\n"},)

    def check(self, skill: Subject) -> Findings:
        name, line = _field(skill, "name"), skill.line_of("name")
        if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            what = f"at most {LONGEST_NAME} lower-case letters and digits, in words with single hyphens"
            yield Finding(f"the name '{name[:80]}' is not allowed: {what}", skill.file, line)
        if name != skill.path.name:
            yield Finding(f"the name is '{name[:80]}', the folder '{skill.path.name}'", skill.file, line)


class Description(Rule):
    """Write a description of 1 to 1024 characters.

    Why: an agent chooses skills by their description. Agents truncate or reject a longer one, and never choose an empty
    one.

    Fine when: never; put details into the body.
    """

    id = "SKL103"
    name = "description-length"
    target = "skill"
    BAD = (
        {"SKILL.md": "---\nname: example\ndescription: ''\n---\n# Example\n"},
        {"SKILL.md": f"---\nname: example\ndescription: {'Adds numbers. ' * 80}\n---\n# Example\n"},
    )
    GOOD = ({"SKILL.md": f"{_HEAD}---\n# Example\n"},)

    def check(self, skill: Subject) -> Findings:
        said = _field(skill, "description")
        if not 0 < len(said.strip()) <= LONGEST_DESCRIPTION:
            message = f"the description has {len(said.strip())} characters; 1 to {LONGEST_DESCRIPTION} are allowed"
            yield Finding(message, skill.file, skill.line_of("description"))


class Size(Rule):
    """Keep the body of SKILL.md within 300 lines and 4,000 tokens (four characters a token).

    Why: the whole body stays in the agent's context, and agents follow long instructions less closely.

    Fine when: never in your own skill; move details to pages that the agent reads on a stated condition.
    """

    id = "SKL104"
    name = "body-size"
    target = "skill"
    severity = Severity.warning
    BAD = ({"SKILL.md": f"{_HEAD}---\n# Example\n" + "Add.\n\n" * 200}, {"SKILL.md": f"{_HEAD}---\n{'Add. ' * 4000}\n"})
    GOOD = ({"SKILL.md": f"{_HEAD}---\n# Example\n" + "Add.\n\n" * 50},)

    def check(self, skill: Subject) -> Findings:
        body = skill.page.body
        lines, tokens = len(body.splitlines()), len(body) // CHARACTERS_OF_A_TOKEN
        if lines > MOST_LINES:
            yield Finding(f"the body has {lines} lines; {MOST_LINES} are enough", skill.file)
        if tokens > MOST_TOKENS:
            yield Finding(f"the body has about {tokens} tokens; {MOST_TOKENS} are enough", skill.file)


class Competing(Rule):
    """Give the skills of a pack clearly different descriptions.

    The rule compares the stems of words with more than two letters that are not common, and skips sentences about when
    not to use a skill. Two descriptions compete if they share at least half of their words.

    Why: the agent chooses between the two at random, or loads both.

    Fine when: never; state in each when not to use it, and name the other.
    """

    id = "SKL105"
    name = "descriptions-compete"
    target = "skill"
    BAD = (
        {
            "SKILL.md": "---\nname: example\ndescription: Adds two numbers and prints the sum.\n---\n# Example\n",
            "../sibling/SKILL.md": "---\nname: sibling\ndescription: Adds two numbers, prints a sum.\n---\n# Sibling\n",
        },
    )
    GOOD = (
        {
            "SKILL.md": f"{_HEAD}---\n# Example\n",
            "../sibling/SKILL.md": "---\nname: sibling\ndescription: Draws the curve of a function.\n---\n# Sibling\n",
        },
    )

    def check(self, skill: Subject, pack: dict[str, Subject]) -> Findings:
        mine = words_of(skill.description)
        for name, other in sorted(pack.items()):
            theirs = words_of(other.description)
            shared, every = mine & theirs, mine | theirs
            if other.path != skill.path and every and len(shared) / len(every) >= COMPETING:
                share = f"{len(shared)} of {len(every)} words"
                message = f"the description competes with that of '{name}': both have {share}"
                yield Finding(message, skill.file, skill.line_of("description"))


class VagueDescription(Rule):
    """State in the description what the skill does and when to use it.

    It needs at least two words for the task, and a condition: "use when", "for", "before", "if the user".

    Why: the agent sees only the description before it chooses. Without a condition it chooses at random.

    Fine when: never.
    """

    id = "SKL106"
    name = "vague-description"
    target = "skill"
    severity = Severity.warning
    BAD = (
        {"SKILL.md": "---\nname: example\ndescription: Helps with numbers.\n---\n# Example\n"},
        {"SKILL.md": "---\nname: example\ndescription: Use when needed.\n---\n# Example\n"},
        {"SKILL.md": "---\nname: example\ndescription: Expert guidance. Use for coding.\n---\n# Example\n"},
    )
    GOOD = ({"SKILL.md": f"{_HEAD}---\n# Example\n"},)

    def check(self, skill: Subject) -> Findings:
        said, line = _field(skill, "description"), skill.line_of("description")
        if not said.strip():
            raise NotApplicable("the description is missing")
        telling = words_of(said) - _VAGUE
        if len(telling) < LEAST_WORDS:
            yield Finding("the description does not say what the skill does", skill.file, line)
        elif not _WHEN.search(said):
            yield Finding("the description does not say when to use the skill", skill.file, line)


def words_of(description: str) -> frozenset[str]:
    """Return the words of a description that tell skills apart, without their endings."""
    words = re.findall(r"[a-z][a-z0-9_]{2,}", _NOT.sub(" ", description).lower())
    return frozenset(re.sub(r"(?:ing|ed|es|s|e)$", "", word) for word in words if word not in _COMMON)


def _field(skill: Subject, name: str) -> str:
    try:
        found = skill.meta.get(name)
    except BadInput as error:
        raise NotApplicable(error.message) from error
    if not isinstance(found, str):
        raise NotApplicable(f"there is no {name}")
    return found
