// A panel of learning curves: which runs, which of their measurements, the chart, its legend and its numbers.

const SOURCES = { result: "evaluations", log: "logged in training" };

/** Curves of all runs by a key that says their source too. */
function curvesByKey(runs) {
  const found = new Map();
  for (const run of runs) {
    for (const curve of run.curves) {
      const key = `${curve.source} ${curve.name}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push({ run, curve });
    }
  }
  return found;
}

/** A choice of some names; what was chosen stays chosen while there is still such a name. */
function choose(select, names, preferred) {
  const before = select.value || preferred;
  const kept = names.some(([key]) => key === before) ? before : (names[0] ?? [""])[0];
  const groups = new Map();
  for (const [key, text, group] of names) {
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(el("option", { value: key, selected: key === kept }, text));
  }
  const grouped = ([label, options]) => (label === undefined ? options : [el("optgroup", { label }, options)]);
  select.replaceChildren(...[...groups].flatMap(grouped));
  select.value = kept;
}

/**
 * Fills `box`; `show(runs)` draws what of the runs can be drawn together.
 *
 * `settings` are the groups of runs that may share a chart, in order; without them all share one. `preferred` is the
 * measurement to start with.
 */
function makeCurves(box, { settings = null, preferred }) {
  const setting = el("select", { onchange: () => update() });
  const metric = el("select", { onchange: () => update() });
  const logarithmic = el("input", { type: "checkbox", onchange: () => update() });
  const controls = el(
    "div",
    { class: "controls" },
    settings ? el("label", {}, el("span", {}, "runs"), setting) : null,
    el("label", {}, el("span", {}, "measure"), metric),
    el("label", { class: "check" }, logarithmic, "logarithmic"),
    el("button", { type: "button", class: "reset", onclick: () => chart.reset() }, "Show all steps"),
  );
  const area = el("div", { class: "chart" });
  const legend = el("ul", { class: "legend" });
  const note = el("p", { class: "hint" });
  const table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "numbers of the curves" });
  const title = el("summary", {}, "The numbers");
  const numbers = el("details", { class: "numbers", ontoggle: () => fillTable() }, title, table);
  const empty = el("p", { class: "empty", hidden: true }, "No run that the filters leave has a curve.");
  const whole = el("div", {}, controls, area, legend, note, numbers);
  box.append(whole, empty);
  const chart = makeChart(area);
  let runs = [];
  let drawn = [];

  function show(next) {
    runs = next.filter((run) => run.curves.length);
    update();
  }

  function update() {
    whole.hidden = !runs.length;
    empty.hidden = Boolean(runs.length);
    if (!runs.length) return;
    let shown = runs;
    if (settings) {
      const present = settings.filter((name) => runs.some((run) => run.setting === name));
      choose(setting, present.map((name) => [name, name]));
      shown = runs.filter((run) => run.setting === setting.value);
    }
    const byKey = curvesByKey(shown);
    const names = [...byKey].map(([key, [{ curve }]]) => [key, words(curve.name), SOURCES[curve.source]]);
    choose(metric, names, `result ${preferred}`);
    const found = byKey.get(metric.value) ?? [];
    const positive = found.every(({ curve }) => curve.y.every((value) => value > 0));
    logarithmic.disabled = !positive;
    drawn = found.map(({ run, curve }) => ({
      run,
      label: `${run.result.model}, seed ${run.result.seed}`,
      colour: run.colour,
      dashed: run.causal === "no",
      x: curve.x,
      y: curve.y,
      every: curve.every,
    }));
    const yName = words(found[0].curve.name);
    chart.show({ series: drawn, xName: "step", yName, logX: false, logY: positive && logarithmic.checked });
    legend.replaceChildren(...drawn.map(legendEntry));
    const thinned = drawn.find((line) => line.every > 1);
    const touch = "Drag to zoom, double-click to show all; with the keyboard: arrows, plus, minus, 0.";
    note.textContent = thinned ? `${touch} Of long logs every ${thinned.every}th point or so is drawn.` : touch;
    fillTable();
  }

  function legendEntry(line, index) {
    const mark = svg(
      "svg",
      { width: 26, height: 10, "aria-hidden": "true" },
      svg("line", { x1: 1, x2: 25, y1: 5, y2: 5, style: `--model: ${line.colour}`, "stroke-dasharray": dashes(line) }),
    );
    const link = el("a", { href: address(line.run) }, line.label);
    const on = () => chart.highlight(index);
    const off = () => chart.highlight(null);
    const future = line.dashed ? el("span", { class: "future" }, "reads the future") : null;
    return el("li", { onpointerenter: on, onpointerleave: off, onfocusin: on, onfocusout: off }, mark, link, future);
  }

  function fillTable() {
    if (!numbers.open) return table.replaceChildren();
    const steps = [...new Set(drawn.flatMap((line) => line.x))].sort((a, b) => a - b);
    const values = drawn.map((line) => new Map(line.x.map((step, i) => [step, line.y[i]])));
    const heads = drawn.map((line) => el("th", { scope: "col", class: "num" }, line.label));
    const cell = (value) => el("td", { class: "num" }, value === undefined ? "" : readable(value));
    const row = (step) =>
      el("tr", {}, el("th", { scope: "row" }, readable(step)), values.map((known) => cell(known.get(step))));
    const head = el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "step"), heads));
    table.replaceChildren(el("table", {}, head, el("tbody", {}, steps.map(row))));
  }

  return { show };
}
