"""Render integrations again from their records: `python -m omni_kit.scaffold.rerender .omni-kit.toml ...`."""

import sys
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.scaffold.new_model import Scaffold, new_model
from omni_kit.scaffold.update import read_record


def make_again(answers_file: Path) -> Scaffold:
    """Write an integration once more, over what somebody changed.

    Raises:
        BadInput: the file is no answers file, or names what can no longer be read; as `new_model`.
    """
    recorded = read_record(answers_file.parent)
    if recorded.style != "plugin":
        raise BadInput(
            f"{answers_file} belongs to an integration in a checkout", "regenerate it with new-model --style in-tree"
        )
    return new_model(
        recorded.name, recorded.source, target=recorded.target, into=recorded.root, kind=recorded.kind, force=True
    )


if __name__ == "__main__":
    for given in sys.argv[1:]:
        for change in make_again(Path(given)).changes:
            print(f"{change.action:<10}{change.path}")
