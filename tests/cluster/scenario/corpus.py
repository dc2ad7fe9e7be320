"""The manifests of tests/fixtures/corpus, which users of other systems have, applied unchanged on a cluster that reads all
dialects. Each pod must run with the cards and limits that its manifest states, seen from inside, and each refused manifest
must get the stated reason. tests/fixtures/corpus/README.md describes the stated expectations."""
import collections
import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import gather, images, installed, paths  # noqa: E402
from ring.cluster import Ring  # noqa: E402
from ring.testing import RingTest, main, wait_for  # noqa: E402

CORPUS = paths.REPOSITORY / "tests/fixtures/corpus"
IMAGE = "example.com/cuda:12"       # the image that all manifests name
SETTINGS = {"dialects.hami": "on", "dialects.deepomatic-containers": "4", "dialects.rancher-containers": "5"}
MIB = 1 << 20


class Part(NamedTuple):
    """What one container must get. Exactly one of `memory`, `fraction` and `whole` is set."""
    dialect: str
    cards: int
    memory: int = 0             # bytes of each card
    fraction: int = 0           # the n-th part of each card's memory
    whole: bool = False
    compute: int = 0
    limit: int = 100            # of compute
    share: str = ""
    priority: str = "standard"


class Stated(NamedTuple):
    """The expectations of one manifest."""
    parts: dict                 # container -> Part; None: it must see no card
    pods: int
    one_card: bool              # all containers of all pods are on one card
    shows: dict                 # annotation of each pod -> value; "": any
    inside: dict                # container -> {variable: value}
    refused: str                # a part of the refusal; "": the manifest is accepted
    warned: str                 # a part of the warning; "": none is expected
    alone: bool                 # it is applied to an empty cluster
    label: str                  # KEY=VALUE of the node n1 while it runs; "": none
    changed: list               # parts of what `carve convert` says; folder `converted`
    spelling: str               # of `carve convert --to`; "": without


def part_of(text) -> Part | None:
    if text == "none":
        return None
    dialect, cards, amount, *rest = text.split(", ")
    made = Part(dialect, int(cards.split()[0]))
    if amount == "whole":
        return made._replace(whole=True)
    made = made._replace(fraction=int(amount[2:])) if amount.startswith("1/") else \
        made._replace(memory=int(amount.removesuffix(" MiB")) * MIB)
    compute, share, *priority = rest
    least, _, limit = compute.removeprefix("compute ").partition(" to ")
    return made._replace(compute=int(least), limit=int(limit or 100), share=share, **(
        {"priority": priority[0]} if priority else {}))


def stated_in(file) -> Stated:
    """Reads the lines `#> …` of a manifest. An unknown line is an error."""
    parts, shows, inside, changed = {}, {}, collections.defaultdict(dict), []
    simple = {"pods": "1", "refused": "", "warned": "", "labelled": "", "to": ""}
    flags = set()
    for line in re.findall(r"^#> (.*)$", file.read_text(), re.MULTILINE):
        word, _, rest = line.partition(" ")
        if word.endswith(":"):
            parts[word[:-1]] = part_of(rest)
        elif line in ("one card", "alone"):
            flags.add(line)
        elif word == "shows":
            key, _, shows[key] = rest.partition("=")
        elif word == "inside":
            container, _, assigned = rest.partition(" ")
            name, _, inside[container][name] = assigned.partition("=")
        elif word == "changed":
            changed.append(rest)
        elif word in simple:
            simple[word] = rest
        else:
            raise ValueError(f"{file}: {line}")
    if bool(parts) == bool(simple["refused"]):
        raise ValueError(f"{file} must state what its containers get, or why it is refused")
    return Stated(parts, int(simple["pods"]), "one card" in flags, shows, inside, simple["refused"], simple["warned"],
                  "alone" in flags, simple["labelled"], changed, simple["to"])


def manifests(refused) -> list:
    """The files with or without a refusal."""
    return [file for file in sorted(CORPUS.rglob("*.yaml")) if ("refused" in file.parts) == refused]


def import_image(ring):
    """The image of the manifests: its program prints what it sees and waits; also under the name of a CUDA sample."""
    folder = ring.state.folder / "images"
    root, archive = folder / "corpus", folder / "corpus.tar"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(folder / "programs", root, symlinks=True)
    (root / "root").mkdir(exist_ok=True)
    sample = root / "usr/bin/bandwidthTest"
    sample.write_text("#!/bin/sh\nexec ring-look hold 3600\n")
    sample.chmod(0o755)
    images.oci_archive.write(root, IMAGE, archive, ["ring-look", "hold", "3600"])
    shutil.rmtree(root)
    for node in ring.nodes:
        node.import_images([archive])
    archive.unlink()


carves = []


def setUpModule():
    ring = Ring.load()
    unittest.addModuleCleanup(installed.uninstall_control, ring)
    archive = ring.state.folder / "images" / "carve.tar"
    installed.make_image(ring.build, archive)
    carves[:] = installed.install_control(ring, archive, settings=SETTINGS)
    import_image(ring)


class Corpus(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.physical = gather.physical(carves)

    def tearDown(self):
        outcome = self._outcome.result
        if outcome.failures or outcome.errors:
            print("\n" + carves[0].describe_all("carve-control"), flush=True)

    def for_each(self, files, case):
        """Runs case(file) for all, six at a time, and reports every file that fails."""
        self.assertGreater(len(files), 15)
        failed = []
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            begun = {file: pool.submit(case, file) for file in files}
            for file, done in begun.items():
                try:
                    done.result()
                except Exception as error:      # reported for each file below
                    failed.append(f"{file.relative_to(CORPUS)}: {error}")
        print(f"\n{len(files) - len(failed)} of {len(files)} manifests as stated", flush=True)
        self.assertEqual(failed, [], "\n\n".join(failed))

    def test_every_manifest_runs_unchanged_with_the_stated_cards_and_limits(self):
        alone = [file for file in manifests(refused=False) if stated_in(file).alone]
        for file in alone:
            self.applied(file)
            self.nothing_left()
            self.doCleanups()
        self.for_each([file for file in manifests(refused=False) if file not in alone], self.applied)
        self.nothing_left()

    def test_every_refusal_states_the_reason(self):
        self.addCleanup(self.ring.kubectl, "delete", "pods", "--all", "--grace-period=1")
        self.for_each(manifests(refused=True), self.refused)
        self.assertEqual(self.kube.list("Pod"), [])

    def nothing_left(self):
        wait_for("no pod is left", 60, lambda: not self.kube.list("Pod"), every=0.2)

    # --- one manifest ------------------------------------------------------------------------------------------------

    def refused(self, file):
        stated = stated_in(file)
        done = self.ring.kubectl("apply", "-f", file, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(stated.refused, done.stderr)

    def applied(self, file):
        stated = stated_in(file)
        if stated.label:
            self.ring.kubectl("label", "node", "n1", stated.label)
            self.addCleanup(self.ring.kubectl, "label", "node", "n1", stated.label.partition("=")[0] + "-")
        if file.parent.name == "converted":
            file = self.converted(file, stated)
        done = self.ring.kubectl("apply", "-f", file, "-o", "json")
        made = json.loads(done.stdout)
        if made["kind"] == "List":      # what its pod needs comes first
            made = made["items"][-1]
        try:
            self.assertIn(stated.warned, done.stderr)
            pods = self.running(made, stated)
            self.granted(pods, stated)
            self.seen(pods, stated)
        finally:
            self.ring.kubectl("delete", "-f", file, "--wait=false", "--grace-period=1", "--cascade=foreground")

    def converted(self, file, stated):
        """The file as `carve convert` prints it, which says what it changes. `carve lint` finds nothing in the result."""
        carve, output = self.ring.build / "bin/carve", Path(tempfile.mkdtemp(dir=self.ring.state.folder)) / file.name
        self.addCleanup(shutil.rmtree, output.parent)
        done = subprocess.run([carve, "convert", *(["--to", stated.spelling] if stated.spelling else []), file],
                              capture_output=True, text=True, check=True, timeout=60)
        for text in stated.changed:
            self.assertIn(text, done.stderr)
        output.write_text(done.stdout)
        subprocess.run([carve, "lint", output], stdout=subprocess.DEVNULL, check=True, timeout=60)
        return output

    def pods_of(self, made):
        if made["kind"] == "Pod":
            return [self.kube.get("Pod", made["metadata"]["name"])]
        labels = made["spec"]["template"]["metadata"]["labels"]
        return self.kube.list("Pod", labelSelector=",".join(f"{key}={value}" for key, value in labels.items()))

    def running(self, made, stated):
        def all_run():
            pods = self.pods_of(made)
            return pods if len(pods) == stated.pods and all(
                pod["status"]["phase"] == "Running" for pod in pods) else None
        try:
            return wait_for(f"{stated.pods} pods run", 150, all_run, every=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(
                self.describe(pod["metadata"]["name"]) for pod in self.pods_of(made))) from None

    def granted(self, pods, stated):
        """The records and what readers of the dialect find on the pods."""
        cards = set()
        for pod in pods:
            notes = pod["metadata"].get("annotations", {})
            got = {part["part"]: part for part in json.loads(notes.get(check.RECORD, '{"parts": []}'))["parts"]}
            for container, wanted in stated.parts.items():
                if wanted is None:
                    self.assertNotIn(container, got)
                    continue
                part = got[container]
                self.assertEqual((part["dialect"], part["priority"], len({one["uuid"] for one in part["cards"]})),
                                 (wanted.dialect, wanted.priority, wanted.cards), part)
                self.assertEqual(bool(part.get("whole")), wanted.whole, part)
                for card in part["cards"]:
                    cards.add(card["uuid"])
                    self.amount(card, part, wanted)
            for key, value in stated.shows.items():
                self.assertIn(key, notes)
                if value:
                    self.assertEqual(notes[key], value, key)
        if stated.one_card:
            self.assertEqual(len(cards), 1, cards)

    def amount(self, card, part, wanted):
        if wanted.whole:
            return                          # check.check compares the sizes
        self.assertEqual((part["share"], card["compute"], part.get("ceiling", 100)),
                         (wanted.share, wanted.compute, wanted.limit), part)
        if wanted.memory:
            self.assertEqual(card["bytes"], wanted.memory, part)
        else:       # of the size that Carve publishes, which is a little less than the driver's
            share = card["bytes"] * wanted.fraction / self.physical[card["uuid"]]
            self.assertTrue(0.97 < share <= 1, f"{share} of 1/{wanted.fraction}: {part}")

    def seen(self, pods, stated):
        """What a new process in each container sees; one byte more than its limit is refused."""
        wanted = [(pod, container["name"], self.limit(pod, container["name"]) + 1)
                  for pod in pods for container in pod["spec"]["containers"]]
        looks = gather.look_into_all(self.ring, wanted)
        seen = {(pod["metadata"]["namespace"], pod["metadata"]["name"], container): look
                for (pod, container, _), look in zip(wanted, looks)}
        self.assert_no_findings(check.check(pods, [], [], seen, by="records", physical=self.physical))
        for (pod, container, _), look in zip(wanted, looks):
            if stated.parts[container] is None:
                self.assertFalse((look["cuda"] or {"cards": []})["cards"])
            else:
                self.assertEqual(look["allocated"], 2, look)        # CUDA_ERROR_OUT_OF_MEMORY
            if stated.inside.get(container):
                inside = self.ring.kubectl("exec", pod["metadata"]["name"], "-c", container, "--", "env").stdout
                for name, value in stated.inside[container].items():
                    self.assertIn(f"{name}={value}", inside.splitlines())

    @staticmethod
    def limit(pod, container):
        given = check.given_by_record(pod, next(one for one in pod["spec"]["containers"] if one["name"] == container))
        return given[0]["memory"] if given else 0


if __name__ == "__main__":
    main()
