"""`python -m omni_evals.run`: an agent over the tasks, without and with the skills; resumes an interrupted run."""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from .agent import attempt
from .table import Row, table
from .tasks import Task, load_tasks
from .workplace import Workplace

SKILLS = "omni-kit skills add --project --agent"


def sweep(command: str, tasks: list[Task], into: Path, seconds: float, skills: str) -> list[Row]:
    """Lets an agent try what it has not tried yet; writes each attempt to results.jsonl, and table.md.

    Args:
        into: where results are kept, and looked for.
        seconds: an upper bound for each task, where the task's own is higher.
        skills: what installs the skills into a project.
    """
    into.mkdir(parents=True, exist_ok=True)
    results = into / "results.jsonl"
    rows = _known(results)
    tried = {(row["task"], row["skills"]) for row in rows}
    for task in tasks:
        for with_skills in (False, True):
            if (task.name, with_skills) in tried:
                continue
            row = _one(command, task, into, min(seconds, task.seconds), skills if with_skills else "")
            rows.append(row)
            results.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
            (into / "table.md").write_text(table(rows), encoding="utf-8")
            print(json.dumps(row), flush=True)
    return rows


def _known(results: Path) -> list[Row]:
    """Attempts of an earlier sweep; a last line that was cut off is tried again."""
    rows: list[Row] = []
    for line in results.read_text(encoding="utf-8").splitlines() if results.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def _one(command: str, task: Task, into: Path, seconds: float, skills: str) -> Row:
    with tempfile.TemporaryDirectory() as place:
        workplace = Workplace(Path(place))
        made = attempt(command, task, workplace, seconds, skills)
        log = into / "logs" / f"{task.name}-{'with' if skills else 'without'}.log"
        log.parent.mkdir(exist_ok=True)
        log.write_bytes((workplace.root / "agent.log").read_bytes())
    return {"task": task.name, "skills": bool(skills), **asdict(made)}


def main() -> int:
    """Reads AGENT, the command that starts the agent, from the environment: it needs no quoting there."""
    parser = argparse.ArgumentParser(prog="make eval", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="tasks to try; all by default")
    parser.add_argument("--into", type=Path, default=Path("eval-results"), help="where results are kept")
    parser.add_argument("--skills-for", default="agents", help="whose folder the skills are put into, as claude")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most this long for a task")
    given = parser.parse_args()
    command = os.environ.get("AGENT", "")
    if "{prompt}" not in command:
        print("error: AGENT has no {prompt}; say make eval AGENT='claude -p {prompt}'", file=sys.stderr)
        return 2
    skills = f"{SKILLS} {given.skills_for}"
    try:
        print(table(sweep(command, load_tasks(*given.tasks), given.into, given.minutes * 60, skills)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
