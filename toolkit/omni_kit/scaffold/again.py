"""Makes integrations again from their answers: `python -m omni_kit.scaffold.again .omni-kit.toml ...`."""

import sys
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.scaffold.answers import load_answers
from omni_kit.scaffold.new_model import Scaffold, new_model


def make_again(answers_file: Path) -> Scaffold:
    """Writes an integration once more, over what somebody changed.

    Raises:
        BadInput: the file is no answers file, or names what can no longer be read; as `new_model`.
    """
    answers = load_answers(answers_file).answers
    if missing := [key for key in ("name", "source", "target", "style") if key not in answers]:
        raise BadInput(f"{answers_file} does not say its {missing[0]}", "give the .omni-kit.toml of an integration")
    if answers["style"] != "plugin":
        raise BadInput(
            f"{answers_file} is of an integration in a checkout", "make it again with new-model --style in-tree"
        )
    into = answers_file.resolve().parents[1]
    return new_model(answers["name"], answers["source"], target=answers["target"], into=into, force=True)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        for change in make_again(Path(given)).changes:
            print(f"{change.action:<10}{change.path}")
