// Pieces that several pages use: tables, meters, links, answers of the read API.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { read } from "./api.js";
import { bytes, percent, ratio, shortUuid } from "./format.js";

const ROWS = 200; // shown at once; more on request

/** A bar with two marks: what is granted, and what is used of the total. */
export function Meter({ label, granted, used, total, text }) {
  const share = ratio(granted, total) ?? 0;
  const now = ratio(used, total);
  return html`<div class="meter" role="img" aria-label=${`${label}: ${text}`}>
    <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="8" />
      <rect class="granted" width=${share * 100} height="8" />
      ${now === null ? null : html`<rect class="used" y="2.5" width=${now * 100} height="3" />`}
    </svg>
    <span>${text}</span>
  </div>`;
}

export function MemoryMeter({ memory }) {
  const limit = memory.granted ?? memory.limit;
  const total = memory.total ?? memory.limit;
  const text =
    memory.total === undefined
      ? `${bytes(memory.used)} used of ${bytes(limit)}`
      : `${bytes(memory.granted)} granted, ${bytes(memory.used)} used of ${bytes(total)}`;
  return html`<${Meter} label="memory" granted=${limit} used=${memory.used} total=${total} text=${text} />`;
}

export function ComputeMeter({ cores }) {
  const granted = cores.granted ?? cores.guaranteed;
  const total = cores.total ?? 100;
  const limit = cores.limit === undefined || cores.limit === 100 ? "" : `, at most ${percent(cores.limit)}`;
  const text = `${percent(granted)} promised${limit}, ${percent(cores.delivered)} delivered`;
  return html`<${Meter} label="compute" granted=${granted} used=${cores.delivered} total=${total} text=${text} />`;
}

/**
 * A table. `columns` are [title, cell, value]: `cell` renders a row, `value` (optional) sorts by it; a column with a
 * value has a button to sort.
 */
export function Table({ caption, columns, rows, keyOf, empty }) {
  const [sort, setSort] = useState({ column: -1, down: false });
  const [most, setMost] = useState(ROWS);
  if (rows.length === 0) return html`<p class="empty">${empty ?? "None."}</p>`;
  const value = columns[sort.column]?.[2];
  const sorted = value ? [...rows].sort((a, b) => compare(value(a), value(b)) * (sort.down ? -1 : 1)) : rows;
  const order = (at) => (at !== sort.column ? "none" : sort.down ? "descending" : "ascending");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption>${caption}</caption>
      <thead>
        <tr>
          ${columns.map(
            ([title, , by], at) => html`<th key=${title} scope="col" aria-sort=${by ? order(at) : null}>
              ${by
                ? html`<button type="button" onClick=${() => setSort({ column: at, down: at === sort.column && !sort.down })}>
                    ${title}${at !== sort.column ? "" : sort.down ? " ▾" : " ▴"}
                  </button>`
                : title}
            </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${sorted.slice(0, most).map(
          (row) => html`<tr key=${keyOf(row)}>${columns.map(([title, cell]) => html`<td key=${title}>${cell(row)}</td>`)}</tr>`,
        )}
      </tbody>
    </table>
    ${rows.length > most
      ? html`<p><button type="button" onClick=${() => setMost(most + 10 * ROWS)}>
          ${rows.length - most} more rows
        </button></p>`
      : null}
  </div>`;
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}

export const nodeLink = (name) => html`<a href=${`#/node/${encodeURIComponent(name)}`}>${name}</a>`;
export const cardLink = (uuid) => html`<a href=${`#/card/${uuid}`} title=${uuid}>${shortUuid(uuid)}</a>`;
export const podLink = (namespace, pod) =>
  html`<a href=${`#/pod/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`}>${pod}</a>`;

export function sliceName(slice) {
  return slice.pod ? html`${slice.namespace}/${podLink(slice.namespace, slice.pod)}` : slice.name || slice.id;
}

export function health(card) {
  if (!card.healthy) return html`<strong class="bad">unhealthy: ${card.reason}</strong>`;
  if (card.closed) return html`<strong class="closed">closed: ${card.closed}</strong>`;
  return card.reason ? `healthy (${card.reason})` : "healthy";
}

/** The columns of a table of slices. */
export const SLICE_COLUMNS = [
  ["slice", sliceName, (slice) => slice.name],
  ["container", (slice) => slice.container],
  ["node", (slice) => nodeLink(slice.node), (slice) => slice.node],
  ["card", (slice) => cardLink(slice.card), (slice) => slice.card],
  ["memory", (slice) => html`<${MemoryMeter} memory=${slice.memory_bytes} />`, (slice) => slice.memory_bytes.limit],
  ["compute", (slice) => html`<${ComputeMeter} cores=${slice.cores} />`, (slice) => slice.cores.delivered],
  ["class", (slice) => (slice.whole ? "whole card" : `${slice.share}, ${slice.priority}`), (slice) => slice.share],
  ["state", (slice) => slice.state, (slice) => slice.state],
];

export const CARD_COLUMNS = [
  ["card", (card) => cardLink(card.uuid), (card) => card.uuid],
  ["node", (card) => nodeLink(card.node), (card) => card.node],
  ["model", (card) => card.model, (card) => card.model],
  ["memory", (card) => html`<${MemoryMeter} memory=${card.memory_bytes} />`, (card) => card.memory_bytes.granted],
  ["compute", (card) => html`<${ComputeMeter} cores=${card.cores} />`, (card) => card.cores.granted],
  ["slices", (card) => card.slices, (card) => card.slices],
  ["health", health, (card) => (card.healthy ? card.closed : "!")],
];

/** The last answer to a GET of a path of the read API, or the error; it is read again every `every` ms,
 * and sooner while the server says that it has none yet (503). */
export function useAnswer(path, every, parameters = {}) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    let open = true;
    let timer;
    const load = async () => {
      const next = await read(path, parameters).then((value) => ({ value }), (error) => ({ error }));
      if (!open) return;
      setAnswer(next);
      timer = setTimeout(load, next.error?.status === 503 ? Math.min(every, 3_000) : every);
    };
    load();
    return () => {
      open = false;
      clearTimeout(timer);
    };
  }, [path, ...Object.values(parameters)]);
  return answer;
}
