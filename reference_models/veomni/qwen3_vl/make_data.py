"""Write a small data set in the format that train.yaml names: `python -m qwen3_vl.make_data data.jsonl`.

Each line is a conversation, `{"messages": [{"role": ..., "content": ...}, ...]}`, as transformers' processors take it;
images are files next to the data. Only the assistant's messages are trained.
"""

import argparse
import json
import random
import struct
import zlib
from pathlib import Path

COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}


def picture(file: Path, color: tuple[int, int, int], width: int, height: int) -> None:
    """Write a PNG of one color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(color) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def sample(draw: random.Random, number: int, folder: Path) -> dict[str, list[dict[str, object]]]:
    """Return a conversation about one or two images; every fourth has none."""
    names = [draw.choice(list(COLORS)) for _ in range(draw.randrange(1, 3) if number % 4 else 0)]
    content: list[dict[str, str]] = []
    for place, name in enumerate(names):
        file = folder / f"{number}_{place}.png"
        picture(file, COLORS[name], draw.randrange(32, 97), draw.randrange(32, 97))
        content.append({"type": "image", "path": str(file)})
    content.append({"type": "text", "text": "Which colors are these?"})
    answer = {"role": "assistant", "content": [{"type": "text", "text": " ".join(names) or "none"}]}
    return {"messages": [{"role": "user", "content": content}, answer]}


def main() -> None:
    """Write the data set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="JSON Lines file to write; images go to a folder next to it")
    parser.add_argument("--samples", type=int, default=256, help="number of conversations")
    options = parser.parse_args()
    folder = options.file.resolve().with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    lines = [json.dumps(sample(draw, number, folder)) for number in range(options.samples)]
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
