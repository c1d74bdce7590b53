"use strict";
// Elements and numbers. Text is set as text, never read as markup.

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** An element with attributes (`onclick` and the like are listeners) and children. */
function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same of SVG. */
function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

/** Where a run's page is. */
const address = (run) => `#run/${encodeURIComponent(run.id)}`;

/** A spot in a model's colour. */
function swatch(colour) {
  return el("i", { class: "swatch", style: `--model: ${colour}` });
}

/** A number as a reader wants it: five digits that count, thousands apart. */
function readable(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) || Math.abs(value) >= 1e5) return Math.round(value).toLocaleString("en-US");
  if (Math.abs(value) < 1e-4) return value.toExponential(3);
  const digits = Math.max(0, 4 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.min(digits, 8) });
}

/** A key of a result file in words. */
const words = (key) => key.replaceAll("_", " ");
