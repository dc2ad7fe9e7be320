// Amounts as text for people. Units: bytes, and hundredths of a card.

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** "3.2 GiB"; one decimal, rounded down, so that free memory is never overstated. "?" if the amount is not known. */
export function bytes(count) {
  if (count === null || count === undefined) return "?";
  let unit = 0;
  let amount = count;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  const shown = unit === 0 ? String(amount) : String(Math.floor(amount * 10) / 10);
  return `${shown} ${UNITS[unit]}`;
}

/** "37.5 %"; "?" if it is not known. */
export function percent(value) {
  return value === null || value === undefined ? "?" : `${Math.round(value * 10) / 10} %`;
}

/** Hundredths of a card as cards: 250 is "2.5 cards". */
export function cards(hundredths) {
  return hundredths === null || hundredths === undefined ? "?" : `${Math.round(hundredths) / 100} cards`;
}

export function shortUuid(uuid) {
  return uuid.length > 16 ? `${uuid.slice(0, 12)}…` : uuid;
}

export function time(unixMs) {
  return new Date(unixMs).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

/** a / b, from 0 to 1; null if one is not known. */
export function ratio(a, b) {
  return a === null || a === undefined || !b ? null : Math.min(1, a / b);
}
