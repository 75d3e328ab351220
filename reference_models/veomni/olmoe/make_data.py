"""Write a small data set in the format that train.yaml names: `python -m olmoe.make_data data.jsonl`.

Each line is a conversation, `{"messages": [{"role": ..., "content": ..., "loss_mask": 0 or 1}, ...]}`. Only messages
with a loss_mask of 1 are trained.
"""

import argparse
import json
import random
from pathlib import Path


def sample(draw: random.Random) -> dict[str, list[dict[str, object]]]:
    """Return a conversation: digits, and the same digits in order."""
    digits = [str(draw.randrange(10)) for _ in range(draw.randrange(3, 9))]
    question = {"role": "user", "content": f"Sort {' '.join(digits)}", "loss_mask": 0}
    return {"messages": [question, {"role": "assistant", "content": " ".join(sorted(digits)), "loss_mask": 1}]}


def main() -> None:
    """Write the data set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="JSON Lines file to write")
    parser.add_argument("--samples", type=int, default=256, help="number of conversations")
    options = parser.parse_args()
    draw = random.Random(0)
    lines = [json.dumps(sample(draw)) for _ in range(options.samples)]
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
