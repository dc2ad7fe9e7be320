"""Checks a metrics text against Prometheus' conventions and reports violations as sentences. Uses no code of Carve.

source  https://prometheus.io/docs/instrumenting/exposition_formats/, https://prometheus.io/docs/practices/naming/
"""
import re

KINDS = ("counter", "gauge", "histogram", "summary", "untyped")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([^=,{}"]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
NOT_BASE = re.compile(r"_(ms|millis|milliseconds|us|micros|microseconds|ns|nanos|nanoseconds|minutes|hours|days|"
                      r"kb|mb|gb|kib|mib|gib|kilobytes|megabytes|mebibytes|gigabytes|gibibytes|percent|pct|bits)(_|$)")
PARTS = ("_bucket", "_sum", "_count")       # of a histogram


def labels_of(text) -> list | None:
    """[(name, value)]; None when the text cannot be parsed."""
    found, at = [], 0
    while text and at < len(text):
        one = LABEL.match(text, at)
        if one is None:
            return None
        found.append(one.group(1, 2))
        at = one.end()
    return found


def read(text) -> tuple:
    """({family: {"HELP": [text], "TYPE": [text]}}, [(name, [(label, value)], number)], [violations])."""
    families, samples, wrong = {}, [], []
    if not text.endswith("\n"):
        wrong.append("the last line has no line end")
    for line in filter(None, text.split("\n")):
        word = line.split(" ", 3)
        if line.startswith("#"):
            if len(word) == 4 and word[1] in ("HELP", "TYPE"):
                families.setdefault(word[2], {"HELP": [], "TYPE": []})[word[1]].append(word[3])
            continue
        one = SAMPLE.fullmatch(line)
        labels = one and labels_of(one.group(2))
        try:
            samples.append((one.group(1), labels + [], float(one.group(3))))
        except (AttributeError, TypeError, ValueError):
            wrong.append(f"cannot be read: {line}")
    return families, samples, wrong


def family_of(name, families) -> str:
    """The family of a sample name; the three kinds of lines of a histogram belong to the histogram."""
    for part in PARTS:
        whole = name.removesuffix(part)
        if whole != name and families.get(whole, {}).get("TYPE") == ["histogram"]:
            return whole
    return name


def check_family(name, comments) -> list:
    """Checks one family's name and comments."""
    wrong = [f"{name}: {len(comments[word])} lines of {word}" for word in ("HELP", "TYPE") if len(comments[word]) != 1]
    kind = (comments["TYPE"] or ["untyped"])[0]
    if kind not in KINDS:
        wrong.append(f"{name}: {kind} is no type")
    if (kind == "counter") != name.endswith("_total"):
        wrong.append(f"{name}: a {kind}")
    if NOT_BASE.search(name):
        wrong.append(f"{name}: not in a base unit")
    return wrong


def check_histogram(name, samples) -> list:
    """Each series must have rising buckets up to +Inf, which equals its count, and a sum."""
    wrong, series = [], {}
    for sample, labels, value in samples:
        rest = tuple(sorted(one for one in labels if one[0] != "le"))
        lines = series.setdefault(rest, {part: [] for part in PARTS})
        part = sample.removeprefix(name)
        if part not in PARTS:
            wrong.append(f"{name}: a line that does not belong to a histogram")
            continue
        lines[part].append((dict(labels).get("le"), value))
    for rest, lines in series.items():
        where = f"{name}{dict(rest)}"
        if len(lines["_sum"]) != 1 or len(lines["_count"]) != 1:
            wrong.append(f"{where}: {len(lines['_sum'])} sums and {len(lines['_count'])} counts")
        bounds = [le for le, _ in lines["_bucket"]]
        if None in bounds or bounds[-1:] != ["+Inf"] or sorted(bounds, key=float) != bounds:
            wrong.append(f"{where}: buckets {bounds}")
        numbers = [value for _, value in lines["_bucket"]]
        if numbers != sorted(numbers) or lines["_count"][:1] != [(None, value) for value in numbers[-1:]]:
            wrong.append(f"{where}: buckets hold {numbers}, the count is {lines['_count']}")
    return wrong


def check(text) -> list:
    """All violations in one scrape; empty when there are none."""
    families, samples, wrong = read(text)
    declared, seen, of = set(families), set(), {}
    for name, labels, value in samples:
        family = family_of(name, families)
        of.setdefault(family, []).append((name, labels, value))
        series = (name, tuple(sorted(labels)))
        if series in seen:
            wrong.append(f"{name}{dict(labels)}: twice")
        seen.add(series)
        names = [label for label, _ in labels]
        wrong += [f"{name}: label {label!r}" for label in names if not re.fullmatch("[a-z_]+", label)]
        if len(names) != len(set(names)):
            wrong.append(f"{name}: a label twice: {names}")
    wrong += [f"{family}: neither HELP nor TYPE" for family in sorted(of.keys() - declared)]
    for family in sorted(declared):
        wrong += check_family(family, families[family])
        if families[family]["TYPE"] == ["histogram"]:
            wrong += check_histogram(family, of.get(family, []))
    return wrong
