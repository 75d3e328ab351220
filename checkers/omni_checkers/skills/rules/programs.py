"""Commands and flags that a skill tells to run."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.skills.examples import HEAD
from omni_checkers.skills.facts.installed import Absent, Dead, Installed
from omni_checkers.skills.facts.mentions import ProgramCall
from omni_checkers.skills.facts.programs import Programs
from omni_checkers.skills.subject import Subject

_FLAG = re.compile(r"(--[a-z][\w-]*)(?:[ =].*)?")
_TARGET = re.compile(r"^([\w./-]+(?:\s+[\w./-]+)*)\s*::?(?!=)", re.MULTILINE)
_INTERPRETER = re.compile(r"python[\d.]*")


class DeadCommand(Rule):
    """Use only commands that the named program has.

    The rule knows omni-kit's commands. It runs other programs with `--help` only: those of an installed distribution
    and those with a man page or completion; with --ask all programs outside the repository. It also looks up modules of
    `python -m` and, in a checkout, targets of `make`.

    Why: the agent's step fails, and its improvised replacement does not prove what the skill promises.

    Fine when: the text names the version that has the command.
    """

    id = "SKL401"
    name = "dead-command"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}```bash\nomni-kit fly olmoe\n```\n"},
        {"SKILL.md": f"{HEAD}Then run `omni-kit patchgen fly`.\n"},
        {"SKILL.md": f"{HEAD}```bash\npython -m omni_kit.no_such_module\n```\n"},
    )
    GOOD = ({"SKILL.md": f"{HEAD}```bash\nomni-kit patchgen run config.py && python -m omni_kit --help\n```\n"},)

    def check(
        self, skill: Subject, program_calls: list[ProgramCall], programs: Programs, installed: Installed,
        untested: set[str], checkout: Path | None = None,
    ) -> Findings:  # fmt: skip
        if not program_calls:
            raise NotApplicable("it names no command")
        for one in program_calls:
            wrong = programs.wrong(one.call)
            if wrong is not None and wrong[0] == "command":
                yield Finding(wrong[1], one.path, one.line)
            elif _INTERPRETER.fullmatch(one.call.program):
                yield from self._module(one, installed, untested)
            elif one.call.program == "make" and checkout is not None and not one.inline:
                yield from self._made(one, checkout)
            elif programs.is_missing(one.call) and (not one.inline or _has_flag(one)):
                untested.add(f"'{one.call.program}' is not installed: its commands and flags were not tested")
            elif programs.is_unasked(one.call) and (not one.inline or _has_flag(one)):
                untested.add(f"'{one.call.program}' may not support --help and was not run; --ask runs it")

    def _module(self, one: ProgramCall, installed: Installed, untested: set[str]) -> Iterator[Finding]:
        words = one.call.arguments
        name = next((after for word, after in pairwise(words) if word == "-m"), "")
        if name and re.fullmatch(r"[A-Za-z_][\w.]*", name) and not name.isupper():
            try:
                installed.check(name)
            except Dead as why:
                yield Finding(f"no module {name}: {why}", one.path, one.line)
            except Absent:
                untested.add(f"'{name.partition('.')[0]}' is not installed: its names were not tested")

    def _made(self, one: ProgramCall, checkout: Path) -> Iterator[Finding]:
        files = [checkout / "Makefile", *checkout.glob("*.mk"), *checkout.glob("*/*/*.mk")]
        text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())
        names = {name for match in _TARGET.finditer(text) for name in match[1].split()}
        for word in one.call.arguments:
            if names and re.fullmatch(r"[a-z][\w-]*", word) and word not in names:
                yield Finding(f"the Makefile has no target '{word}'", one.path, one.line)


def _has_flag(program_calls: ProgramCall) -> bool:
    return any(word.startswith("--") for word in program_calls.call.arguments)


class DeadFlag(Rule):
    """Use only flags that the command accepts.

    A flag without a command belongs to one of the programs that its section names. If one of these is not installed,
    the rule cannot check the flag.

    Why: the command fails with a usage error, or the agent drops the flag and does something else.

    Fine when: the text names the version that has the flag.
    """

    id = "SKL402"
    name = "dead-flag"
    target = "skill"
    BAD = (
        {"SKILL.md": f"{HEAD}```bash\nomni-kit check plugins/olmoe --flies\n```\n"},
        {"SKILL.md": f"{HEAD}Run `omni-kit inspect olmoe --prove`.\n"},
        {"SKILL.md": f"{HEAD}```bash\nomni-kit check plugins/olmoe\n```\n\nWith `--flies` it flies.\n"},
    )
    GOOD = ({"SKILL.md": f"{HEAD}```bash\nomni-kit check plugins/olmoe\n```\n\nWith `--fix` it mends.\n"},)

    def check(self, skill: Subject, program_calls: list[ProgramCall], programs: Programs) -> Findings:
        for one in program_calls:
            wrong = programs.wrong(one.call)
            if wrong is not None and wrong[0] == "flag":
                yield Finding(wrong[1], one.path, one.line)
        yield from self._alone(skill, program_calls, programs)

    def _alone(self, skill: Subject, program_calls: list[ProgramCall], programs: Programs) -> Iterator[Finding]:
        sections: dict[tuple[Path, int], list[ProgramCall]] = {}
        for one in program_calls:
            sections.setdefault(one.section, []).append(one)
        for page in skill.pages:
            for span in page.code:
                match = _FLAG.fullmatch(span.text)
                near = sections.get((page.path, span.section), [])
                if match and near and not any(programs.may_take(one.call, match[1]) for one in near):
                    names = ", ".join(sorted({one.call.program for one in near}))
                    yield Finding(f"{names} has no {match[1]}", page.path, span.line)
