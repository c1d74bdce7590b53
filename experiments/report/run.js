// The page of one run: all that its result says of it.

/** A run's page as an element; `before` and `after` are its neighbours among the runs that the filters leave. */
function runPage(run, { before, after, listed }) {
  const { result } = run;
  const step = (to, text, rel) => (to ? el("a", { href: address(to), rel }, text) : el("span", { class: "off" }, text));
  const steps = [el("a", { href: "#runs" }, "All runs"), step(before, "Previous", "prev"), step(after, "Next", "next")];
  const title = el("h2", { tabindex: -1, id: "run-title" }, swatch(run.colour), `${result.model}, seed ${result.seed}`);
  const marks = el(
    "p",
    { class: "marks" },
    el("a", { href: `#${run.benchmark}` }, run.benchmark),
    el("span", {}, run.setting),
    el("span", { class: `mark ${run.causal}` }, `causal: ${DATA.causal[run.causal]}`),
    el("span", { class: `status ${result.status}` }, result.status),
  );
  const page = el(
    "article",
    { "aria-labelledby": "run-title" },
    el("nav", { class: "steps", "aria-label": "runs" }, steps),
    listed ? null : el("p", { class: "warning" }, "The filters leave this run out of lists and charts."),
    title,
    marks,
    el(
      "div",
      { class: "columns" },
      numbers("Metrics", result.metrics, run.measure),
      costs(result),
      gates(result.gates),
    ),
    el("h3", {}, "Curves"),
  );
  const curves = el("div", { class: "curves" });
  page.append(curves);
  const positions = run.positions ? el("div", { class: "chart" }) : null;
  if (positions) page.append(el("h3", {}, "Test loss by position in the window"), positions);
  page.append(...tests(result.tests), ...origin(result), ...config(result));
  return {
    page,
    /** Charts need their width: call it when the page is in the document. */
    draw() {
      makeCurves(curves, { preferred: DATA.benchmarks.find(({ name }) => name === run.benchmark).curve }).show([run]);
      if (positions) drawPositions(positions, run);
    },
  };
}

function drawPositions(box, run) {
  const { nats, targets } = run.positions;
  const points = nats.map((value, i) => [i + 1, value]);
  const known = points.filter(([, value], i) => targets[i] > 0 && typeof value === "number");
  const line = { label: run.result.model, colour: run.colour, dashed: false };
  const series = [{ ...line, x: known.map(([place]) => place), y: known.map(([, value]) => value) }];
  makeChart(box).show({ series, xName: "position in the window", yName: "nats per token", logX: true, logY: false });
}

/** Keys and their values under a title; nothing where there are none. `first` is set off. */
function numbers(title, values, first = null) {
  const entries = Object.entries(values ?? {});
  if (!entries.length) return null;
  const entry = ([key, value]) => [el("dt", {}, words(key)), el("dd", {}, written(value))];
  const row = ([key, value]) => el("div", { class: key === first && "first", "data-key": key }, entry([key, value]));
  return el("section", {}, el("h3", {}, title), el("dl", { class: "values" }, entries.map(row)));
}

function costs({ parameters, state_bytes: state, training }) {
  const { per_sequence: bytes, ...others } = state;
  const sizes = Object.entries(parameters).map(([key, value]) => [`parameters, ${words(key)}`, value]);
  const named = { ...Object.fromEntries(sizes), "state bytes, per sequence": bytes, ...others };
  return numbers("Size and training", { ...named, ...training });
}

function gates(values) {
  if (!values?.length) return null;
  const rows = values.map((value, layer) => {
    const isNumber = typeof value === "number";
    const share = isNumber ? 100 * Math.min(Math.max(value, 0), 1) : 0;
    const filled = el("span", { style: `width: ${share.toFixed(1)}%` });
    const bar = el("span", { class: "gauge", "aria-hidden": "true" }, filled);
    const text = isNumber ? value.toFixed(3) : written(value);
    return el("div", {}, el("dt", {}, `layer ${layer + 1}`), el("dd", {}, bar, text));
  });
  const hint = el("p", { class: "hint" }, "Of the memory, after training; the mark is at 0.5.");
  return el("section", {}, el("h3", {}, "Gates"), el("dl", { class: "values gates" }, rows), hint);
}

function tests(rows) {
  if (!Array.isArray(rows) || !rows.length) return [];
  const plain = rows.map((row) => Object.fromEntries(Object.entries(row).filter(([, value]) => !emptyObject(value))));
  const keys = [...new Set(plain.flatMap(Object.keys))];
  const isNumber = (key) => plain.every((row) => !(key in row) || typeof row[key] === "number");
  const kinds = keys.map((key) => (isNumber(key) ? "num" : null));
  const cell = (row, key, kind) => el("td", { class: kind }, key in row ? written(row[key]) : "");
  const head = el("tr", {}, keys.map((key, i) => el("th", { scope: "col", class: kinds[i] }, words(key))));
  const body = plain.map((row) => el("tr", {}, keys.map((key, i) => cell(row, key, kinds[i]))));
  const box = { class: "scroll", role: "region", tabindex: 0, "aria-labelledby": "tests-title" };
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, body));
  return [el("h3", { id: "tests-title" }, "Tests"), el("div", box, table)];
}

function origin({ command, provenance, audit }) {
  const { git_revision: revision, git_dirty: dirty, versions, hardware } = provenance;
  const code = { revision: revision ?? "unknown", "uncommitted changes": dirty ?? "unknown" };
  const audits = Object.entries(audit ?? {}).filter(([, found]) => found?.verdict);
  const verdicts = Object.fromEntries(audits.map(([when, found]) => [when, `${found.verdict}: ${found.reason ?? ""}`]));
  return [
    el("h3", {}, "Command"),
    el("pre", { class: "command", tabindex: 0 }, el("code", {}, command)),
    el(
      "div",
      { class: "columns" },
      numbers("Code", code),
      numbers("Versions", versions),
      numbers("Hardware", hardware),
      numbers("Causality audit", verdicts),
    ),
  ];
}

function config(result) {
  const closed = (title, value, id) =>
    el("details", { id }, el("summary", {}, title), el("pre", { tabindex: 0 }, el("code", {}, asYaml(value))));
  return [
    el("div", { class: "columns" }, numbers("Protocol", result.protocol), numbers("The paper", result.published)),
    closed("Config", result.config, "config"),
    closed("The result file, without its curves", result, "file"),
  ];
}

const emptyObject = (value) => typeof value === "object" && value !== null && !Object.keys(value).length;

/** A value in one line. */
function written(value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return readable(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Nested keys as YAML writes them, near enough to read. */
function asYaml(value, indent = "") {
  return Object.entries(value)
    .map(([key, item]) => {
      const nested = item !== null && typeof item === "object" && !Array.isArray(item) && !emptyObject(item);
      if (nested) return `${indent}${key}:\n${asYaml(item, `${indent}  `)}`;
      return `${indent}${key}: ${typeof item === "string" ? item : JSON.stringify(item)}`;
    })
    .join("\n");
}
