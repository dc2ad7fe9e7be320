"""The dashboard of one machine, in a headless Chromium: `carve up --dashboard` on the simulated driver. One method is one
test; run as root: machine_cases.py --bin <build>/bin [--audit axe.js] [--pictures FOLDER] test_name. Exit code 77: skipped,
with the reason."""
import gzip
import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "node"))
import browser  # noqa: E402
from machine import Machine, enter_private_namespace, see_only_own_processes, until  # noqa: E402

GIB = 1 << 30
PAGES = ("", "slices", "queue", "room", "namespaces", "events")


def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


class Dashboard:
    """A machine with its dashboard."""

    def __init__(self, profile="a100x4"):
        self.machine = Machine(option("--bin"), profile)
        self.machine.up("--dashboard", "127.0.0.1:0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.machine.close()

    def link(self):
        """The next one-time link."""
        until("there is a link", 10, lambda: os.path.exists("/run/carve/dashboard.link"))
        return open("/run/carve/dashboard.link", encoding="utf-8").read().strip()

    def sign_in(self):
        """(address of the page, a token)."""
        address, key = self.link().split("/dashboard/#key=")
        return address, self.get(address, f"session?key={key}")["token"]

    @staticmethod
    def get(address, path, token=""):
        request = urllib.request.Request(f"{address}/v1/{path}", headers={"X-Carve-Token": token})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def run(self, memory, cores, *program):
        return self.machine.start("run", "--memory", memory, "--cores", str(cores), "--", *program)

    def spin(self, memory, cores, *more):
        return self.run(memory, cores, self.machine.program("carve-sample-spin"), "--seconds", "600", *more)


def opened(tab, dashboard):
    tab.open(dashboard.link())
    tab.wait_for("document.querySelector('[data-total=\"cards\"]')", 20)


def test_shows_what_the_driver_accounts():
    with Dashboard() as dashboard, browser.Browser() as tab:
        dashboard.spin("4Gi", 30, "--memory", "1Gi")
        dashboard.run("8Gi", 20, dashboard.machine.program("carve-sample-alloc"), "--target", "6Gi", "--hold", "600")
        opened(tab, dashboard)
        address, token = dashboard.sign_in()
        until("both slices use memory", 20, lambda: all(
            one["memory_bytes"]["used"] >= GIB for one in dashboard.get(address, "slices", token)["items"]) and
            dashboard.get(address, "slices", token)["total"] == 2)

        def same():
            shown = {card["uuid"]: card["memory_bytes"]["used"] for card in dashboard.get(address, "cards", token)["items"]}
            return shown == {card["uuid"]: card["used_bytes"] for card in dashboard.machine.truth("cards")["cards"]}
        until("the cards' use is the driver's", 20, same)
        cards = dashboard.get(address, "cards", token)["items"]
        granted = sum(card["memory_bytes"]["granted"] for card in cards)
        assert granted == 12 * GIB, granted
        assert sum(card["cores"]["granted"] for card in cards) == 50
        # The page says the same: the sums, and each card of the map.
        tab.wait_for("document.body.innerText.includes('12 GiB granted')")
        tab.wait_for("document.querySelector('[data-total=\"slices\"]').innerText === '2'")
        assert tab.script("return document.querySelectorAll('svg.map a').length") == 4
        assert tab.complaints() == [], tab.complaints()


def test_slices_come_and_go_within_two_seconds():
    with Dashboard() as dashboard, browser.Browser() as tab:
        opened(tab, dashboard)
        count = "document.querySelector('[data-total=\"slices\"]').innerText"
        began = time.monotonic()
        running = [dashboard.spin("1Gi", 5) for _ in range(8)]
        until("all run", 20, lambda: len(dashboard.machine.slices()) == 8)
        _, came = tab.wait_for(f"{count} === '8'", 5)
        for one in running:
            one.kill()
        until("all have ended", 20, lambda: not dashboard.machine.slices())
        _, went = tab.wait_for(f"{count} === '0'", 5)
        print(f"on the page {came:.2f} s after the last began ({time.monotonic() - began:.1f} s in all), gone {went:.2f} s "
              "after the last ended")
        assert came < 2 and went < 2


def test_a_link_works_once_and_nothing_is_open():
    with Dashboard() as dashboard:
        address, key = dashboard.link().split("/dashboard/#key=")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address), address
        assert os.stat("/run/carve/dashboard.link").st_mode & 0o777 == 0o600
        token = dashboard.get(address, f"session?key={key}")["token"]
        assert dashboard.link().split("=")[1] != key
        for path, secret, wanted in ((f"session?key={key}", "", 401), ("cards", "", 401), ("cards", key, 401),
                                     ("cards", "x" * 32, 401), ("watch", "", 401), ("session?key=", "", 401)):
            try:
                dashboard.get(address, path, secret)
                status = 200
            except urllib.error.HTTPError as error:
                status = error.code
            assert status == wanted, (path, secret, status)
        assert dashboard.get(address, "cards", token)["total"] == 4
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            request = urllib.request.Request(f"{address}/v1/cards", method=method, data=b"{}",
                                             headers={"X-Carve-Token": token})
            try:
                urllib.request.urlopen(request, timeout=10)
                raise AssertionError(f"{method} is served")
            except urllib.error.HTTPError as error:
                assert error.code == 405, (method, error.code)
        code, _, complaint = dashboard.machine.carve("dashboard", "--listen", "0.0.0.0:0")
        assert code == 2 and "legal are 127.0.0.1:PORT" in complaint, complaint


def test_says_when_the_agent_or_the_dashboard_is_killed():
    with Dashboard() as dashboard, browser.Browser() as tab:
        opened(tab, dashboard)
        agent = dashboard.machine.pid_of("agent")
        os.kill(agent, signal.SIGSTOP)
        tab.wait_for("document.getElementById('trouble')", 30)
        os.kill(agent, signal.SIGCONT)
        tab.wait_for("!document.getElementById('trouble')", 30)
        last = dashboard.link()
        os.kill(dashboard.machine.pid_of("dashboard"), signal.SIGKILL)
        # Another process knows no token of the killed one: the page asks for the next link.
        tab.wait_for("document.getElementById('trouble') || document.getElementById('token')", 30)
        until("there is another link", 20, lambda: dashboard.link() != last)
        opened(tab, dashboard)


def test_history_is_recorded_and_drawn():
    with Dashboard() as dashboard, browser.Browser() as tab:
        dashboard.spin("4Gi", 30)
        address, token = dashboard.sign_in()
        node = dashboard.get(address, "nodes", token)["items"][0]["name"]
        slice_, = until("the slice runs", 20, lambda: dashboard.get(address, "slices", token)["items"])

        def recorded(parameters):
            try:
                series = dashboard.get(address, f"history?node={node}&since=15m&{parameters}", token)["series"]
            except urllib.error.HTTPError as error:     # the agent is away
                assert error.code == 503, error.read()
                return None
            values = [value for value in series[0]["cores_delivered"] if value is not None] if series else []
            return (series[0], values) if len(values) >= 2 and values[-1] > 50 else None
        series, values = until("two intervals", 60, lambda: recorded(f"slice={slice_['agent_id']}"))
        # It is alone on the card (burst), and launches as fast as the processors that other tests use permit.
        assert 60 <= values[-1] <= 101, values
        assert [value for value in series["memory_granted"] if value][-1] == 4 * GIB
        assert [value for value in series["cores_granted"] if value][-1] == 30
        recorded_card, _ = recorded(f"card={slice_['card']}")
        assert recorded_card["slice"] == "" and [value for value in recorded_card["temperature"] if value]
        dashboard.machine.kill_agent()
        until("the agent is back with its history", 30, lambda: recorded(f"slice={slice_['agent_id']}"))
        tab.open(dashboard.link())
        tab.wait_for("document.querySelector('svg.map')", 20)
        tab.script("location.hash = arguments[0]", f"#/card/{slice_['card']}")
        tab.wait_for("document.querySelectorAll('.uplot canvas').length >= 3", 20)
        assert tab.complaints() == [], tab.complaints()
        for wrong in ("since=1s", "since=99d", "by=x"):
            try:
                dashboard.get(address, f"history?node={node}&{wrong}", token)
                raise AssertionError(wrong)
            except urllib.error.HTTPError as error:
                assert error.code == 400, (wrong, error.read())


def test_every_page_is_accessible_readable_and_small():
    """An audit by axe-core in light and dark, at 1280 and 400 pixels: no violation, and no page scrolls sideways. Colours
    do not depend on the width, so only scripts/soak tries every combination."""
    audit = open(option("--audit"), encoding="utf-8").read()
    with Dashboard() as dashboard:
        dashboard.spin("4Gi", 30)
        dashboard.run("8Gi", 20, dashboard.machine.program("carve-sample-alloc"), "--target", "6Gi", "--hold", "600")
        uuid = dashboard.machine.view()["cards"][0]["uuid"]
        looks = [(1280, "light"), (400, "dark")]
        if os.environ.get("CARVE_SOAK"):
            looks += [(400, "light"), (1280, "dark")]
        for width, theme in looks:
            with browser.Browser(width, 900) as tab:
                tab.resize(width, 900)
                opened(tab, dashboard)
                tab.script("localStorage.setItem('carve-theme', arguments[0]); location.reload()", theme)
                tab.wait_for(f"document.documentElement.dataset.theme === '{theme}' && document.querySelector('svg.map')", 20)
                tab.script(audit + "; window.axe = axe")
                for page in (*PAGES, f"card/{uuid}"):
                    tab.script("location.hash = arguments[0]", f"#/{page}")
                    tab.wait_for("document.querySelector('main h1')")
                    time.sleep(0.7)
                    if option("--pictures"):
                        tab.screenshot(f"{option('--pictures')}/{page.split('/')[0] or 'cards'}-{width}-{theme}.png")
                    found = tab.script("return axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}).then((result) => "
                                       "result.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html + ' ' + "
                                       "node.failureSummary).join('; ')))")
                    assert found == [], (page, width, theme, found)
                    sideways = tab.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                    assert sideways <= 0, (page, width, sideways)
                # By the keyboard alone: "/" reaches the search, and every card is a link.
                tab.script("location.hash = '#/'")
                tab.wait_for("document.getElementById('search')")
                tab.script("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
                assert tab.script("return document.activeElement.id") == "search"
        address = dashboard.link().split("/dashboard/")[0]
        size = 0
        page = urllib.request.urlopen(f"{address}/dashboard/", timeout=10).read().decode()
        names = set(re.findall(r'(?:src|href)="([\w.-]+)"|"\./([\w.-]+)"', page))
        names = {one or other for one, other in names} | {"api.js", "format.js", "html.js", "map.js", "pages.js", "parts.js", "plot.js"}
        for name in sorted(names):
            size += len(gzip.compress(urllib.request.urlopen(f"{address}/dashboard/{name}", timeout=10).read()))
        size += len(gzip.compress(page.encode()))
        print(f"the page has {len(names) + 1} files, {size / 1000:.1f} kB compressed")
        assert size <= 150_000, size


def main():
    if reason := browser.missing(option("--bin") + "/carve"):
        print(f"SKIPPED: {reason}")
        return 77
    name = sys.argv[-1]
    if "accessible" in name and not os.path.exists(option("--audit") or ""):
        print("SKIPPED: the npm package axe-core was not fetched")
        return 77
    see_only_own_processes()
    enter_private_namespace()
    globals()[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
