// The read API: the token, single calls, and the board that follows the server's events.

const API = "../v1/";
const TOKEN = "carve-token";
// A board of more cards is sent as sums by node; pages of nodes and cards then read what they show.
const MOST_CARDS = 4000;

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** A one-time link ends with "#key=…". The key is exchanged for a token, which this tab keeps. */
export async function useLink() {
  const found = /^#key=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", "#/");
  const answer = await fetch(`${API}session?key=${found[1]}`);
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  setToken((await answer.json()).token);
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
}

async function call(path, signal) {
  const token = sessionStorage.getItem(TOKEN) ?? "";
  const answer = await fetch(API + path, { headers: { "X-Carve-Token": token }, signal, cache: "no-store" });
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim());
  return answer;
}

export async function read(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  const text = query.toString();
  return (await call(text ? `${path}?${text}` : path)).json();
}

/** All items of a table, page by page. */
export async function readAll(path, parameters = {}) {
  const items = [];
  let next = "";
  do {
    const page = await read(path, { ...parameters, limit: "10000", continue: next });
    items.push(...page.items);
    next = page.continue;
  } while (next);
  return items;
}

/** The server's events of one response, as [kind, data]. */
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(name))?.slice(name.length);
      yield [field("event: "), field("data: ")];
    }
  }
}

/**
 * What is known of the cluster or machine. `changed` is called after each change. The tables are Maps by key;
 * `trouble` says why the data is old.
 */
export class Board {
  constructor(changed) {
    this.changed = changed;
    this.nodes = new Map();
    this.cards = new Map();
    this.slices = new Map();
    this.waiting = [];
    this.events = [];
    this.models = [];
    this.namespaces = [];
    this.totals = null;
    this.scope = "";
    this.notice = "";
    this.trouble = "";
    this.refused = null;
    this.revision = 0;
    this.byNode = false; // only sums by node are known
    this.alive = 0; // when the server was last heard
  }

  /** Follows the server until `signal` is aborted; a broken connection is opened again. */
  async follow(signal) {
    let pause = 500;
    while (!signal.aborted) {
      try {
        const { totals } = await read("summary");
        const byNode = totals.cards > MOST_CARDS;
        if (byNode !== this.byNode) this.revision = 0;
        this.byNode = byNode;
        const detail = this.byNode ? "nodes" : "cards";
        const answer = await call(`watch?since=${this.revision}&detail=${detail}`, signal);
        for await (const [kind, data] of events(answer)) {
          this.alive = Date.now();
          pause = 500;
          if (kind === "change") this.apply(JSON.parse(data));
          else this.setTrouble(kind === "trouble" ? data : "");
        }
        this.setTrouble("The connection to Carve ended.");
      } catch (error) {
        if (signal.aborted) return;
        this.refused = error instanceof Refused && (error.status === 401 || error.status === 403) ? error : null;
        this.setTrouble(error instanceof Refused ? error.message : "Carve does not answer.", true);
        if (this.refused) return;
      }
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(5000, pause * 2);
    }
  }

  setTrouble(text, always = false) {
    if (this.trouble === text && !always) return;
    this.trouble = text;
    this.changed();
  }

  apply(change) {
    if (change.complete) {
      this.nodes.clear();
      this.cards.clear();
      this.slices.clear();
    }
    for (const name of change.gone.nodes) this.nodes.delete(name);
    for (const uuid of change.gone.cards) this.cards.delete(uuid);
    for (const id of change.gone.slices) this.slices.delete(id);
    for (const node of change.nodes) this.nodes.set(node.name, node);
    for (const card of change.cards) this.cards.set(card.uuid, card);
    for (const slice of change.slices) this.slices.set(slice.id, slice);
    for (const name of ["waiting", "events", "models", "namespaces", "totals", "scope", "notice", "revision"]) {
      if (change[name] !== undefined) this[name] = change[name];
    }
    this.trouble = "";
    this.refused = null;
    this.changed();
  }

  /** The cards, sorted by node and index. */
  sortedCards() {
    return [...this.cards.values()].sort((a, b) => a.node.localeCompare(b.node) || a.index - b.index);
  }

  slicesOf(matches) {
    return [...this.slices.values()].filter(matches).sort((a, b) => a.name.localeCompare(b.name));
  }

  simulated() {
    const sim = (card) => /simulat/i.test(`${card.model} ${card.driver_version}`);
    return [...this.cards.values()].some(sim) || this.models.some((one) => /simulat/i.test(one.model));
  }
}
