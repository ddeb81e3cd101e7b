#!/usr/bin/env python3
"""Compares what graphmend-pack says of a model's sizes with a linked image and a run.

    firmware_sizes.py SIZES.json IMAGE.map OUTPUT

SIZES.json is what `graphmend-pack --emit object --json` printed, IMAGE.map GNU ld's map of an image with that object,
OUTPUT what the image printed: a line "stack N". Flash and arena must be within 2 %, the stack within 2 % or 16 bytes:
what a function saves and does not use need not have been written to.
"""

import json
import re
import sys

FLASH = (".text", ".rodata", ".data", ".ARM.ex", ".eh_frame")
# An input section: its name (if long, alone on a line), address, size, file.
SECTION = re.compile(r"^ (\.\S+)(?:\s*\n)?\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (\S+)$", re.M)


def main():
    sizes = json.load(open(sys.argv[1]))["sizes"]
    text = open(sys.argv[2]).read()
    text = text[text.index("Linker script and memory map"):]
    sections = [(name, int(size, 16), file) for name, size, file in SECTION.findall(text)]
    explains = lambda name: "explain" in name or ".rodata.str" in name
    of_model = lambda file: file.endswith("kws.o") or "libgcc.a" in file
    linked = sum(n for name, n, file in sections if name.startswith(FLASH) and of_model(file) and not explains(name))
    arena = sum(n for name, n, _ in sections if name.endswith("bss.arena"))
    (stack,) = re.findall(r"^stack (\d+)\s*$", open(sys.argv[3]).read(), re.M)
    said = sum(sizes[part] or 0 for part in ("code", "library", "tables", "weights", "data"))
    bad = 0
    for what, is_said, is_seen, slack in [
        ("flash", said, linked, 0),
        ("arena", sizes["arena"], arena, 0),
        ("stack", sizes["stack"], int(stack), 16),
    ]:
        near = abs(is_said - is_seen) <= max(0.02 * is_seen, slack)
        print(f"{what:5} said {is_said}, seen {is_seen}{'' if near else ': NOT within 2 %'}")
        bad += not near
    sys.exit(bad > 0)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
