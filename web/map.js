// The map of cards: SVG, one cell per card, grouped by node; on a board of sums, one cell per node.
import { html } from "./html.js";
import { ratio, bytes, percent } from "./format.js";

/** What the colour of a cell can show: a share from 0 to 1, or null if it is not known. */
export const MEASURES = {
  memory: { label: "memory granted", of: (card) => ratio(card.memory_bytes.granted, card.memory_bytes.total) },
  used: { label: "memory used", of: (card) => ratio(card.memory_bytes.used, card.memory_bytes.total) },
  cores: { label: "compute granted", of: (card) => ratio(card.cores.granted, card.cores.total) },
  delivered: { label: "compute delivered", of: (card) => ratio(card.cores.delivered, card.cores.total) },
};

const STEPS = 10;
const LABELLED = 600; // above this many cells, cells are drawn as one path per colour, without a link each

/** The class of a cell: "bad", "closed", "unknown", or "s0" to "s10". */
function shade(cell, measure) {
  if (!cell.healthy || cell.unhealthy > 0) return "bad";
  if (cell.closed) return "closed";
  const share = MEASURES[measure].of(cell);
  return share === null ? "unknown" : `s${Math.round(share * STEPS)}`;
}

function describe(card) {
  const state = card.healthy === false ? `unhealthy: ${card.reason}` : card.closed ? `closed: ${card.closed}` : "healthy";
  return (
    `${card.node} card ${card.index}, ${card.model}, ${state}; memory ${bytes(card.memory_bytes.granted)} granted, ` +
    `${bytes(card.memory_bytes.used)} used of ${bytes(card.memory_bytes.total)}; compute ${percent(card.cores.granted)} ` +
    `granted, ${percent(card.cores.delivered)} delivered`
  );
}

export function Legend({ measure }) {
  const steps = Array.from({ length: STEPS + 1 }, (_, step) => step);
  return html`<p class="legend" aria-hidden="true">
    <span>${MEASURES[measure].label}: 0 %</span>
    ${steps.map((step) => html`<i class=${`key s${step}`} key=${step}></i>`)}
    <span>100 %</span>
    <i class="key bad"></i><span>unhealthy</span>
    <i class="key closed"></i><span>closed</span>
    <i class="key unknown"></i><span>not known</span>
  </p>`;
}

/** Cells of one node next to each other; the nodes flow like words. */
function place(groups, size, width) {
  const gap = Math.max(1, Math.round(size / 6));
  const label = size >= 16 ? 14 : 0;
  const cells = [];
  const labels = [];
  let x = 0;
  let y = 0;
  for (const [name, members] of groups) {
    const needed = members.length * (size + gap) + size;
    if (x > 0 && x + needed - size > width) {
      x = 0;
      y += size + gap * 3 + label;
    }
    if (label) labels.push({ x, y: y + 10, name, room: Math.floor((needed - 4) / 6) });
    members.forEach((member, at) => cells.push({ x: x + at * (size + gap), y: y + label, member }));
    x += needed;
  }
  return { cells, labels, height: y + size + label + gap };
}

function nodeCells(nodes) {
  return [["", nodes.map((node) => ({ ...node, healthy: node.unhealthy === 0, closed: "" }))]];
}

function byNode(cards) {
  const groups = new Map();
  for (const card of cards) {
    if (!groups.has(card.node)) groups.set(card.node, []);
    groups.get(card.node).push(card);
  }
  return [...groups];
}

/** `nodes` instead of `cards` on a board of sums. */
export function CardMap({ cards, nodes, measure, width }) {
  const count = nodes ? nodes.length : cards.length;
  const size = count > 6000 ? 8 : count > LABELLED ? 12 : count > 100 ? 22 : 34;
  // The cells of a board of sums have no groups: a row as long as the picture is wide.
  const perRow = Math.max(1, Math.floor(width / (size + Math.max(1, Math.round(size / 6)))));
  const rows = [];
  if (nodes) {
    const all = nodeCells(nodes)[0][1];
    for (let at = 0; at < all.length; at += perRow) rows.push([`row ${at}`, all.slice(at, at + perRow)]);
  }
  const { cells, labels, height } = place(nodes ? rows : byNode(cards), size, width);
  const what = nodes ? "nodes" : "cards";
  const title = `Map of ${count} ${what}, coloured by ${MEASURES[measure].label}`;
  if (count > LABELLED) {
    const paths = new Map();
    for (const { x, y, member } of cells) {
      const key = shade(member, measure);
      paths.set(key, `${paths.get(key) ?? ""}M${x} ${y}h${size}v${size}h-${size}z`);
    }
    const open = (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      const scale = width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      const hit = cells.find((cell) => x >= cell.x && x < cell.x + size && y >= cell.y && y < cell.y + size);
      if (hit) location.hash = nodes ? `#/node/${encodeURIComponent(hit.member.name)}` : `#/card/${hit.member.uuid}`;
    };
    return html`<svg class="map dense" role="img" aria-label=${title} viewBox=${`0 0 ${width} ${height}`} onClick=${open}>
      ${[...paths].map(([key, path]) => html`<path key=${key} class=${key} d=${path} />`)}
    </svg>`;
  }
  return html`<svg class="map" role="group" aria-label=${title} viewBox=${`0 0 ${width} ${height}`}>
    ${labels.map(
      ({ x, y, name, room }) =>
        html`<text key=${name} x=${x} y=${y}>${name.length > room ? `${name.slice(0, room - 1)}…` : name}</text>`,
    )}
    ${cells.map(({ x, y, member }) => {
      const text = nodes ? `${member.name}: ${member.cards} cards` : describe(member);
      const to = nodes ? `#/node/${encodeURIComponent(member.name)}` : `#/card/${member.uuid}`;
      return html`<a key=${member.uuid ?? member.name} href=${to} aria-label=${text}>
        <rect class=${shade(member, measure)} x=${x} y=${y} width=${size} height=${size} rx="3"><title>${text}</title></rect>
      </a>`;
    })}
  </svg>`;
}
