"""Write a small data set in the format that train.yaml names: `python -m qwen_image.make_data data.jsonl`.

Each line is `{"prompt": ..., "image": path of an image}`. Parquet files with the bytes of images work, too.
"""

import argparse
import json
import random
from pathlib import Path

from PIL import Image

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (40, 70, 210), "yellow": (230, 210, 40)}


def picture(colour: str, size: int, place: int) -> Image.Image:
    """Return a square of a colour on grey, `place` pixels from the left."""
    made = Image.new("RGB", (size, size), (128, 128, 128))
    made.paste(COLOURS[colour], (place, size // 4, place + size // 3, size // 2))
    return made


def main() -> None:
    """Write the data set, with the images in a folder next to it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="JSON Lines file to write")
    parser.add_argument("--samples", type=int, default=64, help="number of samples")
    parser.add_argument("--size", type=int, default=512, help="pixels along each side")
    options = parser.parse_args()
    folder = options.file.parent / f"{options.file.stem}_images"
    folder.mkdir(parents=True, exist_ok=True)
    draw, lines = random.Random(0), []
    for number in range(options.samples):
        colour = draw.choice(sorted(COLOURS))
        start = draw.randrange(options.size // 3)
        file = folder / f"{number}.png"
        picture(colour, options.size, start).save(file)
        lines.append(json.dumps({"prompt": f"a {colour} square on grey", "image": str(file)}))
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
