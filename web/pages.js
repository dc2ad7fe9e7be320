// The pages. Each gets the board and the words of its address.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { readAll } from "./api.js";
import { bytes, cards as cardsText, percent, time } from "./format.js";
import { BoxLegend, CardMap, Legend, MEASURES, drawsBoxes } from "./map.js";
import { History } from "./plot.js";
import {
  CARD_COLUMNS, ComputeMeter, MemoryMeter, Meter, SLICE_COLUMNS, Table, cardLink, health, nodeLink, podLink, useAnswer,
} from "./parts.js";

const MAP_WIDTH = 1100;

function Totals({ totals, machine }) {
  if (!totals) return null;
  const facts = [
    ["nodes", totals.nodes],
    ["cards", totals.cards],
    ["unhealthy", totals.unhealthy],
    ["slices", totals.slices],
    ...(machine ? [] : [["waiting pods", totals.waiting]]),
  ];
  return html`<section class="totals" aria-label="totals">
    <dl>${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd data-total=${name}>${value}</dd></div>`)}</dl>
    <div class="wide"><h2>Memory</h2><${MemoryMeter} memory=${totals.memory_bytes} /></div>
    <div class="wide">
      <h2>Compute</h2>
      <${Meter} label="compute" granted=${totals.cores.granted} used=${totals.cores.delivered} total=${totals.cores.total}
        text=${`${cardsText(totals.cores.granted)} promised, ${cardsText(totals.cores.delivered)} delivered of ${cardsText(totals.cores.total)}`} />
    </div>
  </section>`;
}

function matches(words, text) {
  return words.every((word) => text.toLowerCase().includes(word));
}

/** All cards, as a map and as a table. */
export function ClusterPage({ board, width }) {
  const [measure, setMeasure] = useState("memory");
  const [search, setSearch] = useState("");
  const [model, setModel] = useState("");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const slicesOn = new Map();
  for (const slice of board.slicesOf(() => true)) slicesOn.set(slice.card, [...(slicesOn.get(slice.card) ?? []), slice]);
  const holders = (card) => (slicesOn.get(card.uuid) ?? []).map((slice) => slice.name).join(" ");
  const cards = board
    .sortedCards()
    .filter((card) => (!model || card.model === model) &&
      matches(words, `${card.node} ${card.uuid} ${card.model} ${card.reason} ${card.closed} ${words.length ? holders(card) : ""}`));
  const nodes = board.byNode
    ? [...board.nodes.values()].filter((node) => matches(words, node.name) && (!model || node.models.includes(model)))
        .sort((a, b) => a.name.localeCompare(b.name))
    : null;
  return html`
    <h1>${board.scope === "machine" ? "This machine" : "Cluster"}</h1>
    <${Totals} totals=${board.totals} machine=${board.scope === "machine"} />
    <section aria-label="cards">
      <h2>Cards</h2>
      <p class="choices">
        <label>Search <input id="search" type="search" value=${search} placeholder="node, card, model, pod"
          onInput=${(event) => setSearch(event.target.value)} /></label>
        <label>Model <select onChange=${(event) => setModel(event.target.value)}>
          <option value="">all</option>
          ${board.models.map((one) => html`<option key=${one.model} selected=${one.model === model}>${one.model}</option>`)}
        </select></label>
        ${drawsBoxes(cards, nodes) ? null : html`<label>Colour <select onChange=${(event) => setMeasure(event.target.value)}>
          ${Object.entries(MEASURES).map(([key, one]) => html`<option key=${key} value=${key} selected=${key === measure}>${one.label}</option>`)}
        </select></label>`}
        <span role="status">${nodes ? `${nodes.length} nodes` : `${cards.length} cards`}</span>
      </p>
      ${drawsBoxes(cards, nodes) ? html`<${BoxLegend} />` : html`<${Legend} measure=${measure} />`}
      <${CardMap} cards=${cards} nodes=${nodes} measure=${measure} slicesOn=${slicesOn} width=${Math.min(MAP_WIDTH, Math.max(320, width))} />
      ${nodes
        ? html`<${Table} caption="Nodes" keyOf=${(node) => node.name} rows=${nodes} columns=${[
            ["node", (node) => nodeLink(node.name), (node) => node.name],
            ["models", (node) => node.models.join(", ")],
            ["cards", (node) => node.cards, (node) => node.cards],
            ["memory", (node) => html`<${MemoryMeter} memory=${node.memory_bytes} />`, (node) => node.memory_bytes.granted],
            ["compute", (node) => html`<${ComputeMeter} cores=${node.cores} />`, (node) => node.cores.granted],
            ["slices", (node) => node.slices, (node) => node.slices],
            ["unhealthy", (node) => node.unhealthy, (node) => node.unhealthy],
          ]} />`
        : html`<${Table} caption="Cards" columns=${CARD_COLUMNS} rows=${cards} keyOf=${(card) => card.uuid} empty="No card matches." />`}
    </section>
  `;
}

/** What a page of a large board reads by itself, every two seconds. */
function useRows(board, path, parameters) {
  const key = JSON.stringify(parameters);
  const [rows, setRows] = useState([]);
  useEffect(() => {
    if (!board.byNode) return undefined;
    let open = true;
    const load = () => readAll(path, parameters).then((items) => open && setRows(items), () => {});
    load();
    const timer = setInterval(load, 2000);
    return () => {
      open = false;
      clearInterval(timer);
    };
  }, [board.byNode, path, key]);
  return rows;
}

function Events({ events, empty }) {
  const rows = [...events].reverse();
  return html`<${Table} caption="Events, the newest first" keyOf=${(event) => `${event.unix_ms}${event.node}${event.kind}${event.slice}`}
    rows=${rows} empty=${empty ?? "No event."} columns=${[
      ["time", (event) => html`<time datetime=${new Date(event.unix_ms).toISOString()}>${time(event.unix_ms)}</time>`, (event) => event.unix_ms],
      ["node", (event) => nodeLink(event.node), (event) => event.node],
      ["kind", (event) => event.kind, (event) => event.kind],
      ["slice", (event) => event.slice],
      ["what happened", (event) => event.text],
    ]} />`;
}

export function NodePage({ board, words: [name] }) {
  const read_cards = useRows(board, "cards", { node: name });
  const read_slices = useRows(board, "slices", { node: name });
  const node = board.nodes.get(name);
  const cards = board.byNode ? read_cards : board.sortedCards().filter((card) => card.node === name);
  const slices = board.byNode ? read_slices : board.slicesOf((slice) => slice.node === name);
  if (!node) return html`<h1>Node ${name}</h1><p class="empty">No card is known on a node of this name.</p>`;
  return html`
    <h1>Node ${name}</h1>
    ${node.answers ? null : html`<p class="warn">Use is not known: ${node.error || "the agent has not been asked yet"}.</p>`}
    <section aria-label="cards">
      <h2>Cards</h2>
      <${Table} caption="Cards" columns=${CARD_COLUMNS} rows=${cards} keyOf=${(card) => card.uuid} />
    </section>
    <section aria-label="slices">
      <h2>Slices</h2>
      <${Table} caption="Slices" columns=${SLICE_COLUMNS} rows=${slices} keyOf=${(slice) => slice.id} empty="No slice." />
    </section>
    <section aria-label="events"><h2>Events</h2><${Events} events=${board.events.filter((event) => event.node === name)} /></section>
  `;
}

function Processes({ node, card }) {
  const { value, error } = useAnswer(`nodes/${encodeURIComponent(node)}`, 2000);
  if (error) return html`<p class="empty">Processes are not shown: ${error.message}.</p>`;
  if (!value) return null;
  const rows = [];
  for (const slice of value.slices ?? []) {
    for (const process of slice.processes ?? []) {
      if (process.card === card) rows.push({ ...process, slice: slice.name || slice.id });
    }
  }
  for (const one of value.cards ?? []) {
    if (one.uuid !== card) continue;
    for (const process of one.foreign ?? []) rows.push({ ...process, slice: "(no slice)" });
  }
  return html`<${Table} caption="Processes on the card, as the driver reports them" rows=${rows} keyOf=${(row) => `${row.pid}${row.slice}`}
    empty="The driver reports no process that may be shown." columns=${[
      ["PID", (row) => row.pid, (row) => row.pid],
      ["command", (row) => row.command, (row) => row.command],
      ["slice", (row) => row.slice, (row) => row.slice],
      ["memory", (row) => row.memory_bytes > 2 ** 60 ? "?" : bytes(row.memory_bytes), (row) => row.memory_bytes],
      ["SM", (row) => percent(row.sm_percent), (row) => row.sm_percent],
    ]} />`;
}

export function CardPage({ board, words: [uuid] }) {
  const read_cards = useRows(board, "cards", { uuid });
  const read_slices = useRows(board, "slices", { card: uuid });
  const card = board.byNode ? read_cards[0] : board.cards.get(uuid);
  const slices = board.byNode ? read_slices : board.slicesOf((slice) => slice.card === uuid);
  if (!card) return html`<h1>Card ${uuid}</h1><p class="empty">No card with this UUID is known.</p>`;
  const facts = [
    ["node", nodeLink(card.node)],
    ["index", card.index],
    ["model", card.model],
    ["driver", card.driver_version],
    ["mode", card.mode],
    ["health", health(card)],
    ["utilization", percent(card.utilization_percent)],
    ["temperature", card.temperature_celsius === null ? "?" : `${card.temperature_celsius} °C`],
    ["power", card.power_watts === null ? "?" : `${card.power_watts} W`],
    ["processes outside slices", card.foreign_processes],
  ];
  return html`
    <h1>Card ${card.index} of ${card.node}</h1>
    <p class="uuid">${uuid}</p>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <${MemoryMeter} memory=${card.memory_bytes} />
    <${ComputeMeter} cores=${card.cores} />
    <section aria-label="slices">
      <h2>Slices</h2>
      <${Table} caption="Slices" columns=${SLICE_COLUMNS} rows=${slices} keyOf=${(slice) => slice.id} empty="No slice holds a part of this card." />
    </section>
    <${History} node=${card.node} card=${uuid} />
    <section aria-label="processes"><h2>Processes</h2><${Processes} node=${card.node} card=${uuid} /></section>
    <section aria-label="events">
      <h2>Events</h2>
      <${Events} events=${board.events.filter((event) => event.text.includes(uuid) || slices.some((slice) => slice.agent_id && slice.agent_id === event.slice))} />
    </section>
  `;
}

/** What a policy sees as free: memory and compute together, in millionths of a card. */
const WHOLE_CARD = 2_000_000;
const freeText = (left) => percent((left / WHOLE_CARD) * 100);

function amount(ask) {
  if (ask.whole) return "whole";
  return ask.memory_percent === undefined ? bytes(ask.memory_bytes) : `${ask.memory_percent} % of the card`;
}

function compute(ask) {
  if (ask.whole) return "whole";
  const wanted = ask.tflops === undefined ? `${ask.cores} of 100` : `${ask.tflops} TFLOPS`;
  return ask.core_limit === undefined ? wanted : `${wanted}, at most ${ask.core_limit}`;
}

const ASK_COLUMNS = [
  ["part", (ask) => (ask.init ? `${ask.part} (init)` : ask.part)],
  ["cards", (ask) => ask.cards],
  ["memory per card", amount],
  ["compute", compute],
  ["class", (ask) => `${ask.share}, ${ask.priority}`],
  ["dialect", (ask) => ask.dialect],
];

/** The cards of a node as the policy ranked them, the chosen ones first. */
function RankedCards({ node }) {
  const cards = [...node.cards].sort((a, b) => b.gives.length - a.gives.length);
  return html`<ul class="ranked">${cards.map(
    (card) => html`<li key=${card.card}>
      <${Meter} label=${`free on ${card.card}`} granted=${card.left} used=${card.gives.length ? card.left : 0} total=${WHOLE_CARD}
        text=${`${freeText(card.left)} free${card.mixed ? ", beside the opposite priority class" : ""}${card.gives.length ? `, for ${card.gives.join(", ")}` : ""}`} />
      ${cardLink(card.card)}
    </li>`,
  )}</ul>`;
}

/** What control would decide about the pod now: the nodes that fit it, with the terms of their scores, and the others. */
function Placement({ why }) {
  const smaller = [
    why.would_fit.memory_bytes === undefined ? null : `${bytes(why.would_fit.memory_bytes)} of memory`,
    why.would_fit.cores === undefined ? null : `${why.would_fit.cores} cores`,
    why.would_fit.cards === undefined ? null : `${why.would_fit.cards} cards`,
  ].filter(Boolean);
  return html`
    ${why.ranked.length
      ? html`<${Table} caption=${`Nodes that fit it now, the policy's choice first: ${why.fits.length} of ${why.nodes}`} rows=${why.ranked} keyOf=${(node) => node.node} columns=${[
          ["node", (node) => nodeLink(node.node)],
          ["policies", (node) => node.policies],
          ["would leave on the cards it gets", (node) => freeText(node.cards_left)],
          ["on the node", (node) => freeText(node.node_left)],
          ["cards now", (node) => html`<${RankedCards} node=${node} />`],
        ]} />`
      : null}
    ${why.refused.length
      ? html`<${Table} caption="Nodes that do not fit it now" rows=${why.refused} keyOf=${(group) => group.why} columns=${[
          ["nodes", (group) => group.nodes, (group) => group.nodes],
          ["reason", (group) => group.why],
        ]} />`
      : null}
    ${smaller.length ? html`<p>A request for ${smaller.join(", or ")} would fit.</p>` : null}
  `;
}

export function PodPage({ board, words: [namespace, pod] }) {
  const read_slices = useRows(board, "slices", { namespace, pod });
  const slices = board.byNode ? read_slices : board.slicesOf((slice) => slice.namespace === namespace && slice.pod === pod);
  const { value, error } = useAnswer(`pods/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`, 3000);
  const why = value && [
    ["state", value.state],
    ["node", value.node ? nodeLink(value.node) : "none"],
    ["policy", value.policy],
    ["what kube-scheduler says", value.scheduler_says],
    ["wrong", value.wrong],
    ["not read", value.unread],
  ].filter(([, text]) => text);
  return html`
    <h1>Pod ${namespace}/${pod}</h1>
    <section aria-label="holds">
      <h2>Promised and delivered</h2>
      <${Table} caption="Slices of the pod" columns=${SLICE_COLUMNS} rows=${slices} keyOf=${(slice) => slice.id} empty="The pod holds no part of a card." />
    </section>
    <section aria-label="why">
      <h2>Why it is there</h2>
      ${error ? html`<p class="empty">Not known: ${error.message}.</p>` : null}
      ${why ? html`<dl class="facts">${why.map(([name, text]) => html`<div key=${name}><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>` : null}
      ${value?.asks.length ? html`<${Table} caption="Requested" columns=${ASK_COLUMNS} rows=${value.asks} keyOf=${(ask) => ask.part} />` : null}
      ${value?.claims.length ? html`<${Table} caption="Claims" rows=${value.claims} keyOf=${(one) => `${one.claim}/${one.request}`} columns=${[
        ["claim", (one) => one.claim || "not created yet"],
        ["request", (one) => one.request],
        ["asks for", (one) => one.asks],
        ["device", (one) => one.device || "none"],
        ["state", (one) => one.state],
      ]} />` : null}
      ${value ? html`<${Placement} why=${value} />` : null}
      ${value ? html`<details><summary>The whole explanation, as <code>kubectl carve explain -o json</code> prints it</summary>
        <pre tabindex="0">${JSON.stringify(value, null, 2)}</pre></details>` : null}
    </section>
    ${slices.filter((slice) => slice.agent_id).map((slice) => html`<div key=${slice.id}>
      <h2>${slice.container} on ${cardLink(slice.card)}</h2>
      <${History} node=${slice.node} card=${slice.card} slice=${slice.agent_id} />
    </div>`)}
  `;
}

/** What waits, grouped by reason. */
export function QueuePage({ board }) {
  const groups = new Map();
  for (const pod of board.waiting) {
    const why = pod.why || "not examined yet";
    if (!groups.has(why)) groups.set(why, []);
    groups.get(why).push(pod);
  }
  const sorted = [...groups].sort((a, b) => b[1].length - a[1].length);
  return html`
    <h1>Queue</h1>
    <p>${board.waiting.length} pods request cards and have no node.</p>
    ${sorted.map(
      ([why, pods]) => html`<section key=${why} aria-label=${why}>
        <h2>${pods.length} × ${why}</h2>
        <${Table} caption="Pods that wait for this reason" rows=${pods} keyOf=${(pod) => `${pod.namespace}/${pod.name}`} columns=${[
          ["namespace", (pod) => pod.namespace, (pod) => pod.namespace],
          ["pod", (pod) => podLink(pod.namespace, pod.name), (pod) => pod.name],
          ["requests", (pod) => pod.asks, (pod) => pod.asks],
        ]} />
      </section>`,
    )}
  `;
}

const PARTS = { 1: "whole cards", 2: "halves", 4: "quarters", 8: "eighths" };

/** What largest request still fits, and what the free room would serve if it were in one piece. */
export function RoomPage({ board }) {
  return html`
    <h1>Free room</h1>
    <p>A part of a card is memory and compute alike: a quarter is a quarter of the memory and 25 hundredths of compute. “In one
      piece” is what the same free room would serve without fragmentation.</p>
    <${Table} caption="By model" rows=${board.models} keyOf=${(one) => one.model} columns=${[
      ["model", (one) => one.model, (one) => one.model],
      ["cards", (one) => one.cards, (one) => one.cards],
      ["empty", (one) => one.empty, (one) => one.empty],
      ["unhealthy", (one) => one.unhealthy, (one) => one.unhealthy],
      ["memory", (one) => html`${bytes(one.memory_bytes.free)} free of ${bytes(one.memory_bytes.total)}`, (one) => one.memory_bytes.free],
      ["largest request", (one) => html`${bytes(one.memory_bytes.largest_request)} or ${one.cores.largest_request} cores`],
      ...[0, 1, 2, 3].map((at) => [
        PARTS[2 ** at],
        (one) => html`${one.shapes[at].fit} <span class="small">of ${one.shapes[at].in_one_piece} in one piece</span>`,
        (one) => one.shapes[at].fit,
      ]),
    ]} />
  `;
}

const USAGE_SPANS = ["1h", "24h", "7d", "30d"];

const hours = (value) => value.toFixed(value < 10 ? 2 : 0);

/** What each namespace used over time, and its quotas. */
function Usage({ machine }) {
  const [span, setSpan] = useState("24h");
  const { value: usage, error } = useAnswer("usage", 60_000, { since: span });
  const quotas = (usage?.namespaces ?? []).flatMap((one) => one.quotas.map((quota) => ({ ...quota, namespace: one.name })));
  return html`
    <section aria-label="usage">
      <h2>Over time</h2>
      <p class="choices" role="group" aria-label="span">${USAGE_SPANS.map(
        (one) => html`<button type="button" key=${one} aria-pressed=${span === one} onClick=${() => setSpan(one)}>${one}</button>`,
      )}</p>
      ${error ? html`<p class="empty">Not known: ${error.message}.</p>` : null}
      ${usage?.silent_nodes ? html`<p>${usage.silent_nodes} of ${usage.nodes} agents did not answer: the sums are too low.</p>` : null}
      ${usage ? html`<${Table} caption="A card-hour is a whole card for an hour" rows=${usage.namespaces} keyOf=${(one) => one.name} empty="Nothing was recorded in this time." columns=${[
        ["namespace", (one) => one.name || (machine ? "(this machine)" : "(no namespace)"), (one) => one.name],
        ["card-hours promised", (one) => hours(one.card_hours.promised), (one) => one.card_hours.promised],
        ["card-hours delivered", (one) => hours(one.card_hours.delivered), (one) => one.card_hours.delivered],
        ["GiB-hours held", (one) => hours(one.gib_hours.held), (one) => one.gib_hours.held],
        ["GiB-hours used", (one) => hours(one.gib_hours.used), (one) => one.gib_hours.used],
      ]} />` : null}
    </section>
    ${machine ? null : html`<section aria-label="quotas">
      <h2>Quotas</h2>
      ${usage?.quotas_error ? html`<p class="empty">Not known: ${usage.quotas_error}.</p>` : null}
      ${usage ? html`<${Table} caption="Limits on cards: ResourceQuotas, and carve-placement in cards" rows=${quotas} keyOf=${(one) => `${one.namespace}/${one.quota}/${one.resource}`} empty="No quota limits cards." columns=${[
        ["namespace", (one) => one.namespace, (one) => one.namespace],
        ["quota", (one) => one.quota, (one) => one.quota],
        ["resource", (one) => one.resource, (one) => one.resource],
        ["used", (one) => one.used],
        ["allowed", (one) => one.hard],
      ]} />` : null}
    </section>`}
  `;
}

export function NamespacesPage({ board }) {
  return html`
    <h1>Namespaces</h1>
    <${Table} caption="What the slices of each namespace hold and use now" rows=${board.namespaces} keyOf=${(one) => one.name} empty="No slice." columns=${[
      ["namespace", (one) => one.name || "(this machine)", (one) => one.name],
      ["slices", (one) => one.slices, (one) => one.slices],
      ["waiting", (one) => one.waiting, (one) => one.waiting],
      ["memory held", (one) => bytes(one.memory_bytes.granted), (one) => one.memory_bytes.granted],
      ["memory used", (one) => bytes(one.memory_bytes.used), (one) => one.memory_bytes.used],
      ["memory wasted", (one) => bytes(Math.max(0, one.memory_bytes.granted - one.memory_bytes.used)), (one) => one.memory_bytes.granted - one.memory_bytes.used],
      ["compute promised", (one) => cardsText(one.cores.granted), (one) => one.cores.granted],
      ["compute delivered", (one) => cardsText(one.cores.delivered), (one) => one.cores.delivered],
      ["use not known", (one) => one.slices_with_unknown_use, (one) => one.slices_with_unknown_use],
    ]} />
    <${Usage} machine=${board.scope === "machine"} />
  `;
}

export function SlicesPage({ board }) {
  const [search, setSearch] = useState("");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const all = useRows(board, "slices", {});
  const slices = (board.byNode ? all : board.slicesOf(() => true)).filter((slice) =>
    matches(words, `${slice.name} ${slice.container} ${slice.node} ${slice.card} ${slice.state} ${slice.share} ${slice.priority}`));
  return html`
    <h1>Slices</h1>
    <p class="choices"><label>Search <input id="search" type="search" value=${search} onInput=${(event) => setSearch(event.target.value)} /></label>
      <span role="status">${slices.length} slices</span></p>
    <${Table} caption="Slices" columns=${SLICE_COLUMNS} rows=${slices} keyOf=${(slice) => slice.id} empty="No slice." />
  `;
}

export function EventsPage({ board }) {
  return html`<h1>Events</h1><${Events} events=${board.events} />`;
}
