"""deploy/grafana with a real Prometheus: it scrapes the agents and control, evaluates rules.yaml, and answers every query
of the dashboard. Prometheus runs outside the cluster, so it reaches the pods through the API server's proxy. It is
Debian's package, unpacked into the cache. Exit code 77: it is not available here."""
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "thirdparty"))
import control  # noqa: E402
import fetch  # noqa: E402
from ring import paths  # noqa: E402
from ring.testing import in_soak, main, wait_for  # noqa: E402

FILES = paths.REPOSITORY / "deploy/grafana"
GIB = 1 << 30
MEMORY, CORES = 4, 30       # of each of the two pods: GiB, hundredths
# Queries that have no series as long as nothing has happened.
MAY_BE_EMPTY = ("carve_control_filter_refusals_total", "carve_control_admission_refusals_total")


def setUpModule():
    control.setUpModule()


class Monitoring(control.ControlTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="carve-prometheus-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.programs = PROGRAMS / "usr/bin"

    # --- Prometheus --------------------------------------------------------------------------------------------------

    def targets(self) -> dict:
        """job -> [(pod, port number)]: the pods that scrape.yaml selects. Debian's Prometheus is built without
        Kubernetes' service discovery."""
        found = {}
        pods = self.kube.list("Pod", "carve-system")
        text = (FILES / "scrape.yaml").read_text()
        for job, name, component, port in re.findall(r"job_name: (\S+)\n(?:.*\n)*?    regex: (\w+);(\w+);(\w+)\n", text):
            labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": component}
            found[job] = [(one["metadata"]["name"], each["containerPort"]) for one in pods
                          if labels.items() <= one["metadata"]["labels"].items()
                          for container in one["spec"]["containers"] for each in container.get("ports", [])
                          if each.get("name") == port]
        self.assertEqual({job: bool(pods) for job, pods in found.items()}, {"carve-agent": True, "carve-control": True})
        self.assertEqual(text.count("honor_labels: true"), 2)
        return found

    def configuration(self) -> str:
        file = self.ring.certificates.file
        host = f"127.0.0.1:{self.ring.kube().port}"
        tls = {"ca_file": file("ca.crt"), "cert_file": file("admin.crt"), "key_file": file("admin.key")}
        jobs = [{"job_name": job, "honor_labels": True, "scheme": "https", "tls_config": tls, "static_configs": [
            {"targets": [host], "labels": {"instance": pod, "__metrics_path__":
                                           f"/api/v1/namespaces/carve-system/pods/{pod}:{port}/proxy/metrics"}}
            for pod, port in pods]} for job, pods in self.targets().items()]
        return json.dumps({"global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
                           "rule_files": [str(FILES / "rules.yaml")], "scrape_configs": jobs}, default=str)

    def start(self):
        """Starts Prometheus on a free port of loopback."""
        config = self.folder / "prometheus.yaml"
        config.write_text(self.configuration())    # JSON is YAML
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            process = subprocess.Popen([self.programs / "prometheus", f"--config.file={config}",
                                        f"--storage.tsdb.path={self.folder}/data", "--web.listen-address=127.0.0.1:0",
                                        "--log.level=info"], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        port = wait_for("Prometheus listens", 30, lambda: re.search(
            r'Listening on" address=127\.0\.0\.1:(\d+)', (self.folder / "log").read_text()))
        self.url = f"http://127.0.0.1:{port.group(1)}"

    def ask(self, path, **query):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            said = json.load(answer)
        self.assertEqual(said["status"], "success")
        return said["data"]

    def query(self, text) -> list:
        return self.ask("query", query=text)["result"]

    def value(self, text):
        found = self.query(text)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    # --- the dashboard -----------------------------------------------------------------------------------------------

    @staticmethod
    def panels() -> list:
        return json.loads((FILES / "carve.json").read_text())["panels"]

    @in_soak
    def test_prometheus_answers_every_query_of_the_dashboard(self):
        pods = [self.create(control.asking(self.name(), {"elasticgpu.io/gpu-memory": MEMORY << 10, "elasticgpu.io/gpu-core":
                                                         CORES}))["metadata"]["name"] for _ in range(2)]
        for name in pods:
            self.wait_ready(name)
        self.start()
        wanted = sum(map(len, self.targets().values()))
        wait_for("all are scraped", 60, lambda: self.value("sum(up)") == wanted)
        held = 'sum(carve_slice_memory_limit_bytes{pod=~"%s"})' % "|".join(pods)
        wait_for("the sum of the pods", 30, lambda: self.value(held) == 2 * MEMORY * GIB)
        wait_for("the recording rules", 30, lambda: (
            self.value('namespace:carve_slice_memory_limit_bytes:sum{namespace="default"}') or 0) >= 2 * MEMORY * GIB)
        self.assertEqual(self.value('sum(carve_slice_compute_guaranteed_ratio{pod=~"%s"})' % "|".join(pods)),
                         2 * CORES / 100)
        cards = len(self.kube.list("GPU", None))
        wait_for("the cards", 30, lambda: (self.value("count(carve_card_healthy)"), self.value("max(carve_cards)")) ==
                 (cards, cards))
        empty, asked = [], 0
        for panel in self.panels():
            for target in panel.get("targets", []):
                text = target["expr"].replace("$__rate_interval", "20s")
                for name in ("namespace", "node", "model"):
                    text = text.replace(f'"${name}"', '".*"')
                self.assertNotIn("$", text)
                asked += 1
                if not wait_for_series(lambda t=text: self.query(t)) and not any(one in text for one in MAY_BE_EMPTY):
                    empty.append((panel["title"], text))
        self.assertEqual(empty, [])
        self.assertGreater(asked, 30)
        # Also those whose condition holds for less than their `for`. These two pods hold memory and use none. The rules
        # of alerts are evaluated after the recording rules; at their first evaluation one replica of control may not
        # have been scraped, and then none leads.
        def alerts():
            return {(alert["labels"]["alertname"], alert["state"]) for alert in self.ask("alerts")["alerts"]}
        with contextlib.suppress(TimeoutError):
            wait_for("only the alert about unused memory", 30, lambda: alerts() == {("CarveMemoryUnused", "pending")})
        self.assertEqual(alerts(), {("CarveMemoryUnused", "pending")})

    def test_the_rules_and_the_dashboard_are_well_formed(self):
        def promtool(*words, folder=FILES):
            return subprocess.run([self.programs / "promtool", *words], cwd=folder, capture_output=True, text=True, check=False)
        for words in (("check", "rules", "rules.yaml"), ("test", "rules", "rules_test.yaml")):
            done = promtool(*words)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # The tests notice a rule that is wrong.
        (self.folder / "rules_test.yaml").write_text((FILES / "rules_test.yaml").read_text())
        for right, wrong in (("carve_card_healthy == 0", "carve_card_healthy == 1"), ("> 0.8", "> 0.9999"), ("for: 30m", "for: 1m"),
                             ("severity: critical", "severity: none")):
            rules = (FILES / "rules.yaml").read_text()
            self.assertIn(right, rules)
            (self.folder / "rules.yaml").write_text(rules.replace(right, wrong))
            self.assertNotEqual(promtool("test", "rules", "rules_test.yaml", folder=self.folder).returncode, 0, wrong)
        tested = set(re.findall(r"alertname: (\w+)", (FILES / "rules_test.yaml").read_text()))
        self.assertEqual(tested, set(re.findall(r"alert: (\w+)", (FILES / "rules.yaml").read_text())))
        board = json.loads((FILES / "carve.json").read_text())
        self.assertGreaterEqual(board["schemaVersion"], 39)
        places = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & places, f"{panel['title']} covers another panel")
            self.assertLessEqual(at["x"] + at["w"], 24)
            places |= cells
            for target in panel.get("targets", []):
                self.assertEqual(target["datasource"]["uid"], "${datasource}", panel["title"])
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))


def wait_for_series(ask):
    """The answer of a query: rates need two scrapes. Empty if there is none within 15 s."""
    try:
        return wait_for("an answer", 15, ask, every=0.5)
    except AssertionError:
        return []


if __name__ == "__main__":
    try:
        PROGRAMS = Path(fetch.debian_set("prometheus"))
    except fetch.Unavailable as error:
        print(f"SKIPPED: {error}")
        sys.exit(77)
    main()
