#!/usr/bin/env python3
"""Writes a C++ source with the files of the web page.

usage: embed_web.py OUTPUT FOLDER…

All .html, .js, .css and .svg files of the folders are embedded. A folder that does not exist is an error: without the
packages the page cannot work. With no folder at all, the source has no file.
"""
import base64
import hashlib
import pathlib
import re
import sys

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".svg": "image/svg+xml"}
PIECE = 8000  # bytes per string literal


def literal(data):
    pieces = []
    for at in range(0, len(data), PIECE):
        text = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in data[at:at + PIECE])
        pieces.append(f'"{text}"')
    return "\n    ".join(pieces) or '""'


def main():
    output, folders = pathlib.Path(sys.argv[1]), sys.argv[2:]
    files = sorted((path for folder in folders for path in pathlib.Path(folder).iterdir() if path.suffix in TYPES),
                   key=lambda path: path.name)
    script = b""
    rows = []
    for path in files:
        data = path.read_bytes()
        if path.name == "index.html":
            scripts = re.findall(rb'<script type="importmap">(.*?)</script>', data, re.S)
            if len(scripts) != 1:
                raise SystemExit("error: index.html must have one import map")
            script = scripts[0]
        rows.append(f'    {{"{path.name}", "{TYPES[path.suffix]}", std::string_view({literal(data)}, {len(data)})}},')
    digest = "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        '#include "cmd/web_files.h"\n\n'
        "namespace carve::cmd {\n\n"
        "dashboard::WebFiles web_files() {\n"
        f"  static const std::array<dashboard::WebFile, {len(rows)}> kFiles = {{{{\n" + "\n".join(rows) + "\n  }};\n"
        f'  return {{kFiles, "{digest}"}};\n'
        "}\n\n}  // namespace carve::cmd\n", encoding="utf-8")


if __name__ == "__main__":
    main()
