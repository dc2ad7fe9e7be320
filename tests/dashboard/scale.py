"""The page of a large cluster in a headless Chromium: 12,500 nodes × 8 cards, which exist only in board_bench. Prints and
checks the time of the first paint, and of an update: from the server's event to the page that shows it. Exit code 77:
skipped, with the reason.

usage: scale.py --bin <build>/bin [--nodes N] [--cards C]
"""
import subprocess
import sys
import time

import browser

FIRST_PAINT_S, UPDATE_S = 2.0, 0.2
UPDATES = 10


def option(name, otherwise=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


def main():
    if reason := browser.missing(option("--bin") + "/board_bench"):
        print(f"SKIPPED: {reason}")
        return 77
    nodes, cards = int(option("--nodes", "12500")), int(option("--cards", "8"))
    server = subprocess.Popen([option("--bin") + "/board_bench", "--nodes", str(nodes), "--cards", str(cards), "--pods",
                               str(nodes * cards // 2), "--serve", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        with browser.Browser() as tab:
            tab.open("about:blank")
            tab.open(address)
            begun = time.monotonic()
            tab.wait_for("document.querySelector('svg.map') && document.querySelector('[data-total=\"cards\"]')", 60)
            seen = time.monotonic() - begun
            painted = tab.script("return performance.now()") / 1000
            cells = tab.script("return [...document.querySelectorAll('svg.map path')].reduce((sum, path) => sum + "
                               "path.getAttribute('d').split('M').length - 1, 0)")
            # From an event's arrival to the frame after it: measured in the page.
            updates = tab.script("""
                return new Promise((done) => {
                  const times = [];
                  const parse = JSON.parse;
                  JSON.parse = (text) => {
                    const begun = performance.now();
                    const value = parse(text);
                    if (value && value.revision) requestAnimationFrame(() => requestAnimationFrame(() => {
                      times.push(performance.now() - begun);
                      if (times.length === %d) { JSON.parse = parse; done(times); }
                    }));
                    return value;
                  };
                })""" % UPDATES)
            complaints = tab.complaints()
    finally:
        server.terminate()
        memory = server.communicate()[0].strip()
    worst = max(updates) / 1000
    print(f"{nodes} nodes × {cards} cards (only in this process), {cells} cells: first paint within {min(seen, painted):.2f} s "
          f"of the page's begin, updates {sorted(updates)[len(updates) // 2]:.0f} ms in the median and {worst * 1000:.0f} ms at "
          f"most, server {memory}")
    assert complaints == [], complaints
    assert min(seen, painted) <= FIRST_PAINT_S, (seen, painted)
    assert worst <= UPDATE_S, updates
    return 0


if __name__ == "__main__":
    sys.exit(main())
