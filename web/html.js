// htm bound to Preact: html`…` makes elements. Text is never read as markup, so a pod's name cannot add any.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
