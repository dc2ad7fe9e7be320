"""Reads a page of the documentation as a reader follows it: its commands in their order, each with the output that the
page shows below it, and compares that with what a command prints. Text only: needs no ring.

A fenced block with a line that begins with `$ ` is a session: commands after `$ `, each followed by its output. Any
other block is a fragment of a manifest. In shown output a line `…` stands for any number of lines, and `…` at the end
of a line for its rest.
"""
import re
import shlex

ELLIPSIS = "…"
FENCED = re.compile(r"(?ms)^ *```[^\n]*\n(.*?)^ *```$")


class Step:
    """A command of a session (`shown`: the lines below it), or a fragment of a manifest."""

    def __init__(self, line: int, text: str, fragment=False):
        self.line = line            # of the page, from 1
        self.text = text
        self.fragment = fragment
        self.shown = []

    @property
    def key(self) -> str:
        """The first line without its comment, by which tables name the step."""
        return re.sub(r"\s+#\s.*", "", self.text.partition("\n")[0]).rstrip("\\ ")


def steps(text: str) -> list:
    """The commands and fragments of a page, in their order. ValueError when a session begins with output."""
    made = []
    for block in FENCED.finditer(text):
        line, lines = text.count("\n", 0, block.start(1)) + 1, block.group(1).splitlines()
        if any(one.startswith("$ ") for one in lines):
            made += _session(line, lines)
        else:
            made.append(Step(line, block.group(1), fragment=True))
    return made


def _session(first: int, lines: list) -> list:
    made = []
    for number, line in enumerate(lines, first):
        if made and _unfinished(made[-1].text):
            made[-1].text += "\n" + line
        elif line.startswith("$ "):
            made.append(Step(number, line[2:]))
        elif made:
            made[-1].shown.append(line)
        else:
            raise ValueError(f"line {number}: output before the first command: {line}")
    return made


def _unfinished(command: str) -> bool:
    """True while the shell would ask for another line: inside a heredoc or quotes, or after a backslash."""
    if heredoc := re.search(r"<<(\w+)", command):
        return command.rpartition("\n")[2] != heredoc.group(1)
    try:
        shlex.split(command, comments=True)
    except ValueError:          # no closing quotation; no escaped character
        return True
    return False


def inline(text: str) -> list:
    """The code spans of the running text, each on one line."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCED.sub("", text))]


def plain(line: str, volatile=()) -> str:
    """A line for comparison: runs of spaces are one space, and what differs from run to run is a placeholder.
    `volatile`: (pattern, placeholder, …) rows."""
    for pattern, placeholder, *_ in volatile:
        line = re.sub(pattern, placeholder, line)
    return " ".join(line.split())


def difference(shown: list, printed: str, volatile=()) -> str | None:
    """The first line that the page shows and the command did not print in its place, or a line that was printed in
    addition; None when the page tells the truth. An empty `shown` promises nothing."""
    if not shown:
        return None
    lines, blocks, at = [plain(line, volatile) for line in printed.splitlines()], [[]], 0
    for line in shown:          # blocks of adjacent lines, with any number of lines between two blocks
        if plain(line) == ELLIPSIS:
            blocks.append([])
        else:
            blocks[-1].append(plain(line, volatile))
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        agree = {place: _agreeing(block, lines[place:]) for place in (range(at, len(lines) + 1) if number else [at])}
        found = next((place for place, count in agree.items() if count == len(block)
                      and (not last or place + count == len(lines))), None)
        if found is None:
            most = max(agree.values())
            return f"the page shows: {block[most]}" if most < len(block) else f"the page does not show: {lines[-1]}"
        at = found + len(block)
    return None


def _agreeing(block: list, lines: list) -> int:
    """How many lines of the block are the first of `lines`."""
    return next((i for i, wanted in enumerate(block) if i == len(lines) or not _equal(wanted, lines[i])), len(block))


def _equal(wanted: str, line: str) -> bool:
    return line.startswith(wanted[:-1].rstrip()) if wanted.endswith(ELLIPSIS) else line == wanted
