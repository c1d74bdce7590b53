// Filters: a row of switches for each property of runs. Where none of a row is on, it leaves all.

const PROPERTIES = {
  benchmark: (run) => run.benchmark,
  model: (run) => run.result.model,
  seed: (run) => String(run.result.seed),
  causal: (run) => run.causal,
};

/** Fills `box` with switches; `changed(leaves)` is called with a test of runs now and after each change. */
function makeFilters(box, runs, changed) {
  const chosen = Object.fromEntries(Object.keys(PROPERTIES).map((name) => [name, new Set()]));
  const switches = [];

  const leaves = (run) =>
    Object.entries(PROPERTIES).every(([name, of]) => !chosen[name].size || chosen[name].has(of(run)));

  function update() {
    for (const { button, name, value } of switches) button.setAttribute("aria-pressed", chosen[name].has(value));
    const count = runs.filter(leaves).length;
    const any = Object.values(chosen).some((values) => values.size);
    clear.hidden = !any;
    const all = `${runs.length} ${runs.length === 1 ? "run" : "runs"}`;
    for (const place of document.querySelectorAll("[data-count]")) place.textContent = any ? `${count} of ${all}` : all;
    changed(leaves);
  }

  function flip(name, value) {
    if (!chosen[name].delete(value)) chosen[name].add(value);
    update();
  }

  const clear = el("button", { type: "button", id: "clear", onclick: reset }, "Clear filters");

  function reset() {
    for (const values of Object.values(chosen)) values.clear();
    update();
  }

  for (const [name, of] of Object.entries(PROPERTIES)) {
    const values = [...new Set(runs.map(of))];
    if (name === "seed") values.sort((a, b) => a - b);
    if (name === "model") values.sort();
    const row = el("div", { class: "switches", role: "group", "aria-labelledby": `filter-${name}` });
    for (const value of values) {
      const text = name === "causal" ? DATA.causal[value] : value;
      const colour = name === "model" ? swatch(runs.find((run) => of(run) === value).colour) : null;
      const attributes = { type: "button", "data-filter": name, "data-value": value, onclick: () => flip(name, value) };
      const button = el("button", attributes, colour, text);
      switches.push({ button, name, value });
      row.append(button);
    }
    box.append(el("div", { class: "filter" }, el("span", { id: `filter-${name}` }, name), row));
  }
  box.append(el("p", { class: "outcome" }, el("span", { "data-count": true, role: "status" }), clear));
  update();
}
