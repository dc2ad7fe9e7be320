// The map of cards: SVG, one cell per card, grouped by node; on a board of sums, one cell per node.
import { html } from "./html.js";
import { bytes, percent, ratio } from "./format.js";

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

const BOX = { width: 160, height: 62, gap: 10, most: 128 };

/** The slices of a card as parts of a bar: [slice, begin, width, used width], each as a share of the bar. */
function parts(slices, limitOf, usedOf, total) {
  let begin = 0;
  return slices.map((slice) => {
    const width = Math.min(1 - begin, ratio(limitOf(slice), total) ?? 0);
    const used = Math.min(1, ratio(usedOf(slice), total) ?? 0);
    const part = [slice, begin, width, used];
    begin += width;
    return part;
  });
}

/** A card with its slices: above what each holds of the memory, below what each is promised of the compute. */
function CardBox({ card, slices, x, y }) {
  const state = card.healthy ? (card.closed ? "closed" : "") : "bad";
  const corner = state ? (state === "bad" ? "unhealthy" : "closed") : `${bytes(card.memory_bytes.free)} free`;
  // The name begins with the visible text, so that a person who speaks to the browser can say what is seen.
  const text = `${card.index} ${corner}: ${describe(card)}; ${slices.length ? slices.map((slice) => slice.name || slice.id).join(", ") : "no slice"}`;
  const bars = [
    [parts(slices, (one) => one.memory_bytes.limit, (one) => one.memory_bytes.used, card.memory_bytes.total), 20],
    [parts(slices, (one) => one.cores.guaranteed, (one) => one.cores.delivered, card.cores.total), 41],
  ];
  return html`<a href=${`#/card/${card.uuid}`}>
    <title>${text}</title>
    <rect class=${`box ${state}`} x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="4" />
    <text x=${x + 6} y=${y + 14}>${card.index}</text>
    <text class="soft" x=${x + BOX.width - 6} y=${y + 14} text-anchor="end">
      ${corner}
    </text>
    ${bars.map(([bar, at]) => html`<g key=${at}>
      <rect class="unknown" x=${x + 6} y=${y + at} width=${BOX.width - 12} height="15" rx="2" />
      ${bar.map(([slice, begin, width, used], number) => html`<g key=${slice.id}>
        <rect class=${`part p${number % 2}`} x=${x + 6 + begin * (BOX.width - 12)} y=${y + at}
          width=${Math.max(1, width * (BOX.width - 12))} height="15" />
        <rect class="used" x=${x + 6 + begin * (BOX.width - 12)} y=${y + at + 5} width=${Math.min(used, 1 - begin) * (BOX.width - 12)} height="5" />
      </g>`)}
    </g>`)}
  </a>`;
}

/** One row of boxes per node, as far as they fit. */
function Boxes({ cards, slicesOn, width, title }) {
  const perRow = Math.max(1, Math.floor((width + BOX.gap) / (BOX.width + BOX.gap)));
  const boxes = [];
  const labels = [];
  let y = 0;
  for (const [name, members] of byNode(cards)) {
    labels.push([name, y + 12]);
    y += 18;
    members.forEach((card, at) => boxes.push([card, (at % perRow) * (BOX.width + BOX.gap), y + Math.floor(at / perRow) * (BOX.height + BOX.gap)]));
    y += Math.ceil(members.length / perRow) * (BOX.height + BOX.gap) + 4;
  }
  const drawn = Math.max(width, BOX.width + 2);
  return html`<svg class="map" role="group" aria-label=${title} viewBox=${`-1 0 ${drawn + 2} ${Math.max(1, y)}`}>
    ${labels.map(([name, at]) => html`<text class="node" key=${name} x="0" y=${at}>${name}</text>`)}
    ${boxes.map(([card, x, at]) => html`<${CardBox} key=${card.uuid} card=${card} slices=${slicesOn.get(card.uuid) ?? []} x=${x} y=${at} />`)}
  </svg>`;
}

/** What the boxes show. */
export function BoxLegend() {
  return html`<p class="legend" aria-hidden="true"><span>upper bar: memory, lower bar: compute</span>
    <i class="key p0"></i><i class="key p1"></i><span>promised to a slice</span><i class="key used"></i><span>used or delivered</span>
    <i class="key unknown"></i><span>free</span></p>`;
}

export const drawsBoxes = (cards, nodes) => !nodes && cards.length <= BOX.most;

/** `nodes` instead of `cards` on a board of sums. `slicesOn`: the slices of each card, by its UUID. */
export function CardMap({ cards, nodes, measure, width, slicesOn }) {
  if (drawsBoxes(cards, nodes)) return html`<${Boxes} cards=${cards} slicesOn=${slicesOn} width=${width} title="Map of the cards and their slices" />`;
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
      return html`<a key=${member.uuid ?? member.name} href=${to}>
        <rect class=${shade(member, measure)} x=${x} y=${y} width=${size} height=${size} rx="3"><title>${text}</title></rect>
      </a>`;
    })}
  </svg>`;
}
