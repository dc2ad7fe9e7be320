// The frame of the page: the address, the banner, the navigation, and the sign-in.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { Board, forgetToken, setToken, useLink } from "./api.js";
import {
  CardPage, ClusterPage, EventsPage, NamespacesPage, NodePage, PodPage, QueuePage, RoomPage, SlicesPage,
} from "./pages.js";

const PAGES = {
  "": ClusterPage, node: NodePage, card: CardPage, pod: PodPage, slices: SlicesPage, queue: QueuePage, room: RoomPage,
  namespaces: NamespacesPage, events: EventsPage,
};
const LINKS = [["", "Cards"], ["slices", "Slices"], ["queue", "Queue"], ["room", "Free room"], ["namespaces", "Namespaces"], ["events", "Events"]];
const SILENT = 12_000; // ms without a word from the server; it sends one every 5 s

/** The page and its words: "#/card/GPU-1" is ["card", ["GPU-1"]]. */
function address() {
  const [page, ...words] = location.hash.replace(/^#\/?/, "").split("/");
  return [page, words.map(decodeURIComponent)];
}

function useAddress() {
  const [now, setNow] = useState(address());
  useEffect(() => {
    const changed = () => setNow(address());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return now;
}

function useWidth() {
  const [width, setWidth] = useState(document.documentElement.clientWidth);
  useEffect(() => {
    const changed = () => setWidth(document.documentElement.clientWidth);
    addEventListener("resize", changed);
    return () => removeEventListener("resize", changed);
  }, []);
  return width - 40;
}

function SignIn({ why, again }) {
  const [token, change] = useState("");
  const submit = (event) => {
    event.preventDefault();
    setToken(token.trim());
    again();
  };
  return html`<section aria-label="sign in">
    <h1>Sign in</h1>
    <p>${why}</p>
    <form onSubmit=${submit}>
      <label>Token <input id="token" type="password" autocomplete="off" value=${token} onInput=${(event) => change(event.target.value)} /></label>
      <button type="submit">Sign in</button>
    </form>
    <p>In a cluster: a bearer token of the API server, such as <code>kubectl create token NAME</code> prints. You see the
      namespaces whose pods you may list. On one machine: open the link that <code>carve dashboard</code> prints; it works
      once.</p>
  </section>`;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("carve-theme") ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("carve-theme", theme);
  }, [theme]);
  return html`<label class="theme">Theme <select onChange=${(event) => setTheme(event.target.value)}>
    ${["auto", "light", "dark"].map((one) => html`<option key=${one} selected=${one === theme}>${one}</option>`)}
  </select></label>`;
}

function App({ board, linkError }) {
  const [, redraw] = useState(0);
  const [round, setRound] = useState(0);
  const [now, setNow] = useState(Date.now());
  const [page, words] = useAddress();
  const width = useWidth();
  useEffect(() => {
    let due = false;
    // Many changes in a moment are drawn once.
    board.changed = () => {
      if (due) return;
      due = true;
      requestAnimationFrame(() => {
        due = false;
        redraw((count) => count + 1);
      });
    };
    const end = new AbortController();
    board.follow(end.signal);
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => {
      end.abort();
      clearInterval(timer);
    };
  }, [round]);
  useEffect(() => {
    const key = (event) => {
      if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      document.getElementById("search")?.focus();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const silent = board.alive && now - board.alive > SILENT ? "Carve has been silent for a while." : "";
  const trouble = board.trouble || silent;
  const Page = PAGES[page];
  if (board.refused) {
    const again = () => {
      board.refused = null;
      setRound(round + 1);
    };
    return html`<main><${SignIn} why=${linkError || board.refused.message} again=${again} /></main>`;
  }
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/">Carve</a>
      ${board.simulated() ? html`<strong class="simulated">SIMULATED CARDS</strong>` : null}
      <nav aria-label="pages">
        ${LINKS.map(([to, text]) => html`<a key=${to} href=${`#/${to}`} aria-current=${page === to ? "page" : null}>
          ${text}${to === "queue" && board.waiting.length ? ` (${board.waiting.length})` : ""}</a>`)}
      </nav>
      <${Theme} />
      <button type="button" onClick=${() => { forgetToken(); location.hash = "#/"; location.reload(); }}>Sign out</button>
    </header>
    <div role="status" aria-live="polite">
      ${trouble ? html`<p class="warn" id="trouble">${trouble} ${board.totals ? "What follows is old." : ""}</p>` : null}
      ${board.notice ? html`<p class="warn">${board.notice}</p>` : null}
    </div>
    <main id="main" tabindex="-1">
      ${!board.totals ? html`<p class="loading">Reading the cards …</p>`
        : Page ? html`<${Page} key=${location.hash} board=${board} words=${words} width=${width} />`
        : html`<h1>No such page</h1>`}
    </main>
    <footer>This page only reads. <span>Revision ${board.revision}</span></footer>
  `;
}

// Another one-time link that is opened in this tab changes the address only.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) location.reload();
});
const board = new Board(() => {});
let linkError = "";
try {
  await useLink();
} catch (error) {
  linkError = error.message;
}
document.getElementById("app").replaceChildren();
render(html`<${App} board=${board} linkError=${linkError} />`, document.getElementById("app"));
