// The past of a card or a slice, drawn by uPlot.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { bytes } from "./format.js";
import { useAnswer } from "./parts.js";

const SPANS = ["15m", "1h", "6h", "24h", "7d", "30d"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** One plot. `lines` are [label, values, colour variable]. */
function Plot({ title, times, lines, format, top }) {
  const place = useRef(null);
  useEffect(() => {
    if (!place.current) return undefined;
    const width = Math.max(240, place.current.clientWidth);
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
    const options = {
      width,
      height: 170,
      scales: { y: { range: (_, least, most) => [0, Math.max(top ?? 0, most ?? 1)] } },
      axes: [axis, { ...axis, size: 70, values: (_, values) => values.map(format) }],
      series: [{}, ...lines.map(([label, , name], at) => ({
        label, stroke: colour(name), width: 2, dash: at === 0 && lines.length > 1 ? [6, 4] : undefined,
        value: (_, value) => (value === null || value === undefined ? "?" : format(value)), spanGaps: false }))],
    };
    const plot = new window.uPlot(options, [times, ...lines.map(([, values]) => values)], place.current);
    return () => plot.destroy();
  }, [times, title]);
  return html`<figure><figcaption>${title}</figcaption><div class="plot" ref=${place}></div></figure>`;
}

/** Promised and delivered use over time, with a choice of the span. */
export function History({ node, card, slice }) {
  const [span, setSpan] = useState("1h");
  const { value, error } = useAnswer("history", 10_000, { node, card, slice, since: span });
  const one = value?.series?.[0];
  return html`<section aria-label="history">
    <h2>History</h2>
    <p class="choices" role="group" aria-label="span of the history">
      ${SPANS.map(
        (each) => html`<button type="button" key=${each} aria-pressed=${each === span} onClick=${() => setSpan(each)}>
          ${each}
        </button>`,
      )}
    </p>
    ${error ? html`<p class="empty">No history: ${error.message}.</p>` : null}
    ${value && !one ? html`<p class="empty">Nothing was recorded in this time.</p>` : null}
    ${one
      ? html`<div class="plots">
          <${Plot} title="compute, hundredths of the card" times=${one.unix_seconds} top=${100} format=${(value) => `${Math.round(value)}`}
            lines=${[["promised", one.cores_granted, "--granted"], ["delivered", one.cores_delivered, "--used"]]} />
          <${Plot} title="memory" times=${one.unix_seconds} format=${(value) => bytes(value)}
            lines=${[["promised", one.memory_granted, "--granted"], ["used", one.memory_used, "--used"]]} />
          ${one.temperature
            ? html`<${Plot} title="temperature" times=${one.unix_seconds} top=${100} format=${(value) => `${Math.round(value)} °C`}
                lines=${[["temperature", one.temperature, "--used"]]} />`
            : null}
        </div>`
      : null}
  </section>`;
}
