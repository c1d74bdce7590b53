// The page: theme, routes, the list of runs, and what the filters do to all of it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const BY_ID = new Map(DATA.runs.map((run) => [run.id, run]));
const SECTIONS = document.getElementById("sections");
const RUN = document.getElementById("run");
const TITLE = document.title;
let left = () => true; // which runs the filters leave
let scrolled = 0; // where the sections were when a run was opened

const panels = DATA.benchmarks.map(({ name, settings, curve }) => {
  const box = document.querySelector(`.curves[data-benchmark="${name}"]`);
  return { name, section: document.getElementById(name), ...makeCurves(box, { settings, preferred: curve }) };
});

function applyFilters(leaves) {
  left = leaves;
  for (const row of document.querySelectorAll("#run-list tbody tr")) row.hidden = !leaves(BY_ID.get(row.dataset.run));
  for (const { name, section, show } of panels) {
    const runs = DATA.runs.filter((run) => run.benchmark === name && leaves(run));
    section.hidden = !runs.length;
    show(runs);
  }
  document.getElementById("no-run").hidden = DATA.runs.some(leaves);
  if (!RUN.hidden) openRun();
}

/** The run that the address names; undefined where it names none. */
function addressed() {
  return location.hash.startsWith("#run/") ? BY_ID.get(decodeURIComponent(location.hash.slice(5))) : undefined;
}

function openRun() {
  const run = addressed();
  const listed = [...document.querySelectorAll("#run-list tbody tr:not([hidden])")].map((row) => row.dataset.run);
  const place = listed.indexOf(run.id);
  const neighbour = (index) => BY_ID.get(listed[index]);
  const around = place < 0 ? { after: neighbour(0) } : { before: neighbour(place - 1), after: neighbour(place + 1) };
  const { page, draw } = runPage(run, { ...around, listed: left(run) });
  RUN.replaceChildren(page);
  draw();
}

function route() {
  const run = addressed();
  const wasOpen = !RUN.hidden;
  if (run && !wasOpen) scrolled = window.scrollY;
  SECTIONS.hidden = Boolean(run);
  RUN.hidden = !run;
  if (run) {
    document.title = `${run.id}: ${TITLE}`;
    openRun();
    window.scrollTo(0, 0);
    document.getElementById("run-title").focus({ preventScroll: true });
  } else {
    document.title = TITLE;
    RUN.replaceChildren();
    const target = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
    if (wasOpen && (!target || target.id === "runs")) window.scrollTo(0, scrolled);
    else if (target) target.scrollIntoView();
  }
}

function makeTheme(button) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const kept = (act) => {
    try {
      return act();
    } catch {
      return null; // storage may be closed to a local file
    }
  };
  let chosen = kept(() => localStorage.getItem("theme"));
  const isDark = () => (chosen ? chosen === "dark" : dark.matches);
  const update = () => {
    if (chosen) document.documentElement.dataset.theme = chosen;
    button.setAttribute("aria-pressed", isDark());
  };
  button.addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    kept(() => localStorage.setItem("theme", chosen));
    update();
  });
  dark.addEventListener("change", update);
  update();
}

/** Headings of the list of runs sort it; the same once more turns it round. */
function makeSortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = el("button", { type: "button" }, head.textContent);
    const cell = (row) => row.cells[column].textContent;
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = new Intl.Collator("en", { numeric: true }).compare;
      const compare = head.classList.contains("num")
        ? (a, b) => Number(cell(a).replaceAll(",", "")) - Number(cell(b).replaceAll(",", ""))
        : (a, b) => order(cell(a), cell(b));
      body.append(...[...body.rows].sort((a, b) => (up ? compare(a, b) : compare(b, a))));
    });
    head.replaceChildren(button);
  });
}

makeTheme(document.getElementById("theme"));
makeSortable(document.getElementById("run-list"));
makeFilters(document.getElementById("filters"), DATA.runs, applyFilters);
window.addEventListener("hashchange", route);
if (location.hash) route();
