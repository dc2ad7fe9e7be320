"""The dashboard of a cluster in a headless Chromium: `kubectl carve dashboard` with the administrator's rights, and
control's own page through the API server's proxy with a bearer token. Its numbers are compared with the API's and with
the simulated driver's account. Exit code 77: Debian's chromium or chromium-driver is not installed."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "dashboard"))
import browser  # noqa: E402
import control  # noqa: E402
from ring.carve import NAMESPACE  # noqa: E402
from ring.cluster import Ring  # noqa: E402
from ring.testing import SOAK, in_soak, main, wait_for  # noqa: E402

GIB = 1 << 30
MEMORY, CORES, USED = 4, 30, 2     # of each pod: GiB, hundredths; GiB that it allocates
PODS = 100 if SOAK else 12
PAGE = "services/https:carve-control:https/proxy"
PICTURES = os.environ.get("CARVE_PICTURES")     # a folder: screenshots of the pages are kept there


def setUpModule():
    control.setUpModule()


class Dashboard(control.ControlTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="carve-dashboard-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)

    # --- access ------------------------------------------------------------------------------------------------------

    def start(self, *words):
        """Starts a program that prints an address; returns the address."""
        log = self.folder / f"{self.name('log')}"
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(list(map(str, words)), stdout=file, stderr=file)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return wait_for(f"{words[0]} listens", 30, lambda: re.search(
            r"(http://)?127\.0\.0\.1:\d+\S*", log.read_text())).group(0)

    def own_dashboard(self):
        """`carve dashboard` of the administrator: its one-time link."""
        return self.start(self.ring.build / "bin" / "carve", "dashboard", "--kubeconfig", self.ring.kubeconfig)

    def proxied(self):
        """The address of control's page through `kubectl proxy`."""
        address = self.start(self.ring.binaries["kubectl"], "--kubeconfig", self.ring.kubeconfig, "proxy", "--port=0")
        return f"http://{address}/api/v1/namespaces/{NAMESPACE}/{PAGE}"

    def token(self, account):
        return subprocess.run([self.ring.binaries["kubectl"], "--kubeconfig", self.ring.kubeconfig, "create", "token", account],
                              text=True, capture_output=True, check=True).stdout.strip()

    def account(self, *rules, namespace=None):
        """The token of a new ServiceAccount with these rules, in all namespaces or in one."""
        name = self.name("viewer")
        self.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
        kind = "Role" if namespace else "ClusterRole"
        where = {"namespace": namespace} if namespace else {}
        api = "rbac.authorization.k8s.io/v1"
        self.create({"apiVersion": api, "kind": kind, "metadata": {"name": name, **where}, "rules": list(rules)})
        self.create({"apiVersion": api, "kind": kind + "Binding", "metadata": {"name": name, **where},
                     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                     "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]})
        return self.token(name)

    @staticmethod
    def get(address, token, path):
        """(status, text) of the read API."""
        request = urllib.request.Request(f"{address}/v1/{path}", headers={"X-Carve-Token": token})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def table(self, address, token, name):
        status, text = self.get(address, token, f"{name}?limit=10000")
        self.assertEqual(status, 200, text)
        return json.loads(text)["items"]

    PODS_AND_CARDS = ({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
                      {"apiGroups": ["elasticgpu.io"], "resources": ["gpus"], "verbs": ["list"]})

    # --- pods --------------------------------------------------------------------------------------------------------

    def fraction(self, name, namespace="default"):
        made = control.asking(name, {"elasticgpu.io/gpu-memory": MEMORY << 10, "elasticgpu.io/gpu-core": CORES},
                              command=["ring-look", "allocate", str(USED * GIB), "hold", "3600"])
        made["metadata"]["namespace"] = namespace
        return made

    def running(self, count=2):
        names = [self.create(self.fraction(self.name()))["metadata"]["name"] for _ in range(count)]
        for name in names:
            self.wait_ready(name)
        return names

    def driver_account(self):
        """UUID -> bytes in use, from the simulated drivers of all nodes."""
        return {card["uuid"]: card["used_bytes"] for one in self.carves for card in one.truth("cards")["cards"]}

    def picture(self, tab, name):
        if PICTURES:
            tab.screenshot(Path(PICTURES) / f"{name}.png")


class Pages(Dashboard):
    def test_the_numbers_are_those_of_the_ledger_and_of_the_driver(self):
        pods = self.running()
        address, token = self.proxied(), self.account(*self.PODS_AND_CARDS)

        def agrees():
            slices = [one for one in self.table(address, token, "slices") if one["pod"] in pods]
            return slices if len(slices) == len(pods) and all(one["memory_bytes"]["used"] for one in slices) else None
        slices = wait_for("use of the pods", 30, agrees)
        for one in slices:
            (uuid, size, cores), = self.cards_of(one["pod"])["main"]
            self.assertEqual((one["card"], one["memory_bytes"]["limit"], one["cores"]["guaranteed"]), (uuid, size, cores))
            self.assertGreaterEqual(one["memory_bytes"]["used"], USED * GIB)
            self.assertLessEqual(one["memory_bytes"]["used"], size)

        def same_use():
            cards = {card["uuid"]: card["memory_bytes"]["used"] for card in self.table(address, token, "cards")}
            return cards if cards == self.driver_account() else None
        wait_for("the cards' use as the driver accounts it", 20, same_use)
        granted = {}
        for pod in self.kube.list("Pod", None):
            if control.binder.RECORD in pod["metadata"].get("annotations", {}) and pod["status"]["phase"] == "Running":
                for part in json.loads(pod["metadata"]["annotations"][control.binder.RECORD])["parts"]:
                    for card in part["cards"]:
                        granted[card["uuid"]] = granted.get(card["uuid"], 0) + card["bytes"]
        shown = {card["uuid"]: card["memory_bytes"]["granted"] for card in self.table(address, token, "cards")
                 if card["memory_bytes"]["granted"]}
        self.assertEqual(shown, granted)

    def test_every_page_is_drawn_and_equals_the_api(self):
        pods = self.running()
        with browser.Browser() as tab:
            tab.open(self.own_dashboard())
            tab.wait_for(f"document.body.innerText.includes('{pods[0]}') || document.querySelector('svg.map')", 30)
            token = tab.script("return sessionStorage.getItem('carve-token')")
            origin = tab.script("return location.origin")
            totals = json.loads(self.get(origin, token, "summary")[1])["totals"]
            for name, key in (("nodes", "nodes"), ("cards", "cards"), ("slices", "slices")):
                tab.wait_for(f"document.querySelector('[data-total=\"{name}\"]')?.innerText === '{totals[key]}'")
            self.picture(tab, "cards")
            self.assertIn("SIMULATED CARDS", tab.text())
            self.assertEqual(tab.script("return document.querySelectorAll('svg.map a').length"), totals["cards"])
            found = self.kube.get("Pod", pods[0])
            card = self.cards_of(pods[0])["main"][0][0]
            for page, words in (("slices", pods), ("queue", ["Queue"]), ("room", ["Free room", "quarters"]),
                                ("namespaces", ["default"]), ("events", ["CardsAssigned"]),
                                (f"node/{found['spec']['nodeName']}", [card[:12]]),
                                (f"card/{card}", ["History", pods[0]]),
                                (f"pod/default/{pods[0]}", ["Promised and delivered", "Why it is there", "4 GiB", "Requested",
                                                             "Nodes that fit it now", "% free"])):
                tab.script("location.hash = arguments[0]", f"#/{page}")
                for word in words:
                    tab.wait_for(f"document.querySelector('main').innerText.includes({json.dumps(word)})", 20)
                self.picture(tab, page.split("/")[0])
            self.assertEqual(tab.complaints(), [])
            # Memory on the page in the same words as in the API: the pod's own row.
            row = tab.script("location.hash = '#/slices'; return new Promise((done) => setTimeout(() => done("
                             "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText)), 1500))")
            mine, = [text for text in row if pods[1] in text]
            self.assertIn("used of 4 GiB", mine)

    def check_usage(self, address, token, namespace):
        """The token sees the quota and the card-hours of its namespace alone."""
        spans = iter(range(1, 60))  # an answer is kept for a minute, so each try asks for another time
        usage = {}

        def recorded():
            usage.update(json.loads(self.get(address, token, f"usage?since={next(spans)}h")[1]))
            return any(one["card_hours"]["promised"] > 0 for one in usage["namespaces"])
        wait_for("the agents' history has the pod", 40, recorded)
        self.assertEqual((usage["nodes"], usage["silent_nodes"], usage["quotas_error"]), (2, 0, ""))
        one, = usage["namespaces"]
        self.assertEqual(one["name"], namespace)
        resource_quota, own = one["quotas"]
        self.assertEqual(resource_quota, {"quota": "cards", "resource": "requests.elasticgpu.io/gpu-core",
                                          "used": str(2 * CORES), "hard": "300"})   # of the pod that waits, too
        self.assertEqual((own["quota"], own["resource"], own["hard"]), ("carve-placement", "cards", "2"))
        self.assertEqual(float(own["used"]), CORES / 100, "of the pod that runs")
        hours = one["gib_hours"]
        self.assertAlmostEqual(hours["held"] / one["card_hours"]["promised"], MEMORY / (CORES / 100), delta=0.5)

    def test_a_token_shows_its_namespaces_alone(self):
        mine, other = self.name("mine"), self.name("other")
        self.create({"apiVersion": "v1", "kind": "ConfigMap",
                     "metadata": {"name": "carve-placement", "namespace": NAMESPACE},
                     "data": {"placement.conf": f"quota.{mine} = *:2\nquota.{other} = *:2"}})
        for name in (mine, other):
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            self.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cards", "namespace": name},
                         "spec": {"hard": {"requests.elasticgpu.io/gpu-core": "300", "pods": "50"}}})
        for name in (mine, other):
            self.create(self.fraction(f"pod-of-{name}", name))
            wait_for(f"the pod of {name} runs", 60, lambda n=name: self.kube.get("Pod", f"pod-of-{n}", n)["status"][
                "phase"] == "Running")
        for name in (mine, other):
            self.create({**self.fraction(f"waits-of-{name}", name), "spec": {
                **self.fraction("x")["spec"], "nodeSelector": {"no": "such-node"}}})
        address = self.proxied()
        token = self.account({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}, namespace=mine)
        everything = self.account(*self.PODS_AND_CARDS)
        wait_for("the administrator sees both", 30, lambda: all(
            f"pod-of-{name}" in self.get(address, everything, "slices?limit=10000")[1] for name in (mine, other)))
        for path in ("summary", "cards", "slices", "nodes", "waiting", "events"):
            status, text = self.get(address, token, path)
            self.assertEqual(status, 200, text)
            self.assertNotIn(other, text, path)
        own = self.table(address, token, "slices")
        self.assertEqual([one["pod"] for one in own], [f"pod-of-{mine}"])
        cards = self.table(address, token, "cards")
        self.assertEqual([card["memory_bytes"]["granted"] for card in cards], [MEMORY * GIB])
        self.check_usage(address, token, mine)
        node = own[0]["node"]
        self.assertEqual(self.get(address, token, f"nodes/{node}")[0], 403)
        self.assertEqual(self.get(address, token, f"pods/{other}/pod-of-{other}")[0], 403)
        self.assertEqual(self.get(address, token, f"pods/{mine}/pod-of-{mine}")[0], 200)
        self.assertEqual(self.get(address, token, f"history?node={node}")[0], 403)
        self.assertEqual(self.get(address, "guess", "cards")[0], 401)
        self.assertEqual(self.get(address, "", "cards")[0], 401)
        self.assertEqual(self.get(address, self.account(), "slices")[1].count("pod-of-"), 0)
        with browser.Browser() as tab:      # the page, with its events, for five seconds
            tab.open(address + "/dashboard/")
            tab.wait_for("document.getElementById('token')", 20)
            tab.script("sessionStorage.setItem('carve-token', arguments[0]); location.reload()", token)
            tab.wait_for("document.querySelector('[data-total=\"slices\"]')?.innerText === '1'", 20)
            for page in ("", "slices", "queue", "room", "namespaces", "events"):
                tab.script("location.hash = arguments[0]", f"#/{page}")
                time.sleep(1)
                self.assertNotIn(other, tab.script("return document.documentElement.outerHTML"), page)
            self.assertIn(mine, tab.script("location.hash = '#/slices'; return new Promise((done) => setTimeout(() => "
                                           "done(document.body.innerText), 1000))"))

    def command(self, *words):
        return subprocess.run([self.ring.build / "bin" / "carve", words[0], "--kubeconfig", self.ring.kubeconfig,
                               *map(str, words[1:])], text=True, capture_output=True, check=True).stdout

    @in_soak
    def test_the_past_of_a_pod_outlives_it(self):
        name, = self.running(1)
        card = self.cards_of(name)["main"][0][0]

        def recorded(at_least):
            nodes = json.loads(self.command("timeline", f"default/{name}", "--since", "15m", "-o", "json"))["nodes"]
            series = [one for node in nodes for one in node["history"]["series"]]
            values = [size for one in series for size in one["memory_granted"] if size]
            return (series[0], values) if len(values) >= at_least else None
        series, values = wait_for("two intervals of the pod", 60, lambda: recorded(2), every=1)
        self.assertEqual((series["card"], series["name"], set(values)), (card, f"default/{name}/main", {MEMORY * GIB}))
        self.assertEqual({cores for cores in series["cores_granted"] if cores}, {CORES})
        self.kube.delete("Pod", name, grace=1)
        wait_for("the pod is gone", 60, lambda: self.kube.get("Pod", name) is None)
        self.assertTrue(recorded(2))
        self.assertIn(f"default/{name}/main", self.command("timeline", card))
        html, csv = self.folder / "report.html", self.folder / "report.csv"
        self.command("report", "--since", "24h", "--file", html, "--csv", csv)
        self.assertIn("(SIMULATED)", html.read_text())
        row, = [line.split(",") for line in csv.read_text().splitlines() if line.startswith("default,")]
        self.assertGreater(float(row[3]), 0)        # GiB-hours held

    @in_soak
    def test_when_control_is_killed_the_page_says_so_and_comes_back(self):
        with browser.Browser() as tab:
            tab.open(self.proxied() + "/dashboard/")
            tab.wait_for("document.getElementById('token')", 20)
            tab.script("sessionStorage.setItem('carve-token', arguments[0]); location.reload()",
                       self.account(*self.PODS_AND_CARDS))
            tab.wait_for("document.querySelector('[data-total=\"cards\"]')", 20)
            for pod in self.kube.list("Pod", NAMESPACE):
                if pod["metadata"]["name"].startswith("carve-control-"):
                    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
                    for pid in self.pids_of(container):
                        os.kill(pid, signal.SIGKILL)
            tab.wait_for("document.getElementById('trouble')?.innerText.includes('What follows is old')", 20)
            self.picture(tab, "trouble")
            tab.wait_for("!document.getElementById('trouble') && document.querySelector('[data-total=\"cards\"]')", 90)


class Flow(Dashboard):
    """Measures time, so it runs without other tests."""

    def test_pods_come_and_go_within_two_seconds(self):
        with browser.Browser() as tab:
            tab.open(self.proxied() + "/dashboard/")
            tab.wait_for("document.getElementById('token')", 20)
            tab.script("sessionStorage.setItem('carve-token', arguments[0]); location.hash = '#/slices'; location.reload()",
                       self.account(*self.PODS_AND_CARDS))
            tab.wait_for("document.querySelector('main h1')?.innerText === 'Slices'", 20)
            prefix = self.name("flow")
            count = ("new Set([...document.querySelectorAll('tbody a[href^=\"#/pod/\"]')].map((link) => link.innerText)"
                     f".filter((name) => name.startsWith('{prefix}'))).size")
            for at in range(PODS):
                self.create(control.asking(f"{prefix}-{at}", {"elasticgpu.io/gpu-memory": 512, "elasticgpu.io/gpu-core": 5}))
            wait_for("all are bound", 120, lambda: sum(
                bool(pod["spec"].get("nodeName")) for pod in self.kube.list("Pod")
                if pod["metadata"]["name"].startswith(prefix)) == PODS)
            _, came = tab.wait_for(f"{count} === {PODS}", 20)
            for at in range(PODS):
                self.wait_ready(f"{prefix}-{at}")
            for at in range(PODS):
                self.kube.delete("Pod", f"{prefix}-{at}", grace=1)
            wait_for("the slices have ended", 60, lambda: not any(
                holder["owner"].get("name", "").startswith(prefix) for gpu in self.kube.list("GPU", None)
                for holder in gpu.get("status", {}).get("holders", [])))
            wait_for("the pods are gone", 60, lambda: not any(
                pod["metadata"]["name"].startswith(prefix) for pod in self.kube.list("Pod")))
            _, went = tab.wait_for(f"{count} === 0", 20)
            print(f"\n{PODS} pods: on the page {came:.2f} s after the last was bound, gone {went:.2f} s after the last ended")
            self.assertLess(came, 2)
            self.assertLess(went, 2 + 3)   # control keeps the room of a deleted pod for 3 s, until the agent has reported


if __name__ == "__main__":
    if reason := browser.missing(Ring.load().build / "bin" / "carve"):
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    main()
