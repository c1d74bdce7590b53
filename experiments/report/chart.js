// A chart of lines: read by pointer, touch or keyboard, and zoomed along its horizontal axis.

const MARGIN = { top: 12, right: 14, bottom: 42, left: 62 };
const MAX_READ = 12; // lines of a readout
const CLICK = 6; // pixels: a shorter drag is a click
let numCharts = 0;

/**
 * A chart in `box`.
 *
 * `show({series, xName, yName, logX, logY})` draws lines `{label, colour, dashed, x, y}`; a zoom stays while the axis
 * does. `reset()` shows the whole axis; `highlight(index or null)` sets one line off against the others.
 */
function makeChart(box) {
  const clip = `plot-${(numCharts += 1)}`;
  const readout = el("div", { class: "readout", hidden: true });
  const spoken = el("p", { class: "unseen", "aria-live": "polite" });
  const canvas = svg("svg", { class: "canvas", tabindex: 0, role: "application" });
  box.append(canvas, readout, spoken);
  let what = { series: [], xName: "", yName: "", logX: false, logY: false };
  let whole = [0, 1]; // of the horizontal axis
  let view = whole;
  let frame = null; // scales and size of what is drawn
  let cursor = null; // the value that is read
  let lit = null;
  let drag = null;

  function show(next) {
    const xs = next.series.flatMap((line) => line.x);
    const range = xs.length ? [least(xs), greatest(xs)] : [0, 1];
    const zoomed = view[0] !== whole[0] || view[1] !== whole[1];
    const stays = zoomed && next.xName === what.xName && view[0] < range[1] && view[1] > range[0];
    if (!stays) view = range;
    [what, whole, cursor, lit] = [next, range, null, null];
    draw();
  }

  function zoom(low, high) {
    const [first, last] = whole;
    [low, high] = [Math.max(first, Math.min(low, high)), Math.min(last, Math.max(low, high))];
    if (high > low) view = [low, high];
    draw();
  }

  function draw() {
    const width = Math.max(box.clientWidth, 240);
    const height = width < 560 ? 280 : 380;
    const { top, right, bottom, left } = MARGIN;
    const [low, high] = valuesIn(view);
    frame = {
      width,
      height,
      x: makeScale(view[0], view[1], left, width - right, what.logX),
      y: makeScale(low, high, height - bottom, top, what.logY),
    };
    canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    canvas.setAttribute("height", height);
    const help = "Arrow keys read the values, plus and minus zoom, 0 shows all.";
    canvas.setAttribute("aria-label", `${what.yName} by ${what.xName}, ${what.series.length} lines. ${help}`);
    const plot = { width: width - left - right, height: height - top - bottom };
    // Dots at the ends are whole.
    const around = { x: left - 4, y: top - 4, width: plot.width + 8, height: plot.height + 8 };
    canvas.replaceChildren(
      svg("defs", {}, svg("clipPath", { id: clip }, svg("rect", around))),
      axes(),
      svg("g", { "clip-path": `url(#${clip})` }, what.series.map(line)),
      svg("g", { class: "cursor" }),
      svg("rect", { class: "brush", y: top, height: plot.height, width: 0 }),
    );
    box.classList.toggle("zoomed", view[0] !== whole[0] || view[1] !== whole[1]);
    read(cursor);
  }

  /** The range of the vertical axis: of the points in sight, and of those that lines come from or go to. */
  function valuesIn([first, last]) {
    const seen = [];
    for (const { x, y } of what.series) {
      for (let i = 0; i < x.length; i += 1) {
        const inside = x[i] >= first && x[i] <= last;
        const beside = !inside && ((x[i + 1] > first && x[i] < first) || (x[i - 1] < last && x[i] > last));
        if (inside || (beside && x.length < 50)) seen.push(y[i]);
      }
    }
    if (!seen.length) return what.logY ? [0.1, 1] : [0, 1];
    const [low, high] = [least(seen), greatest(seen)];
    if (what.logY) return [low / 1.03, high * 1.03];
    const room = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
    return [low - room, high + room];
  }

  function axes() {
    const { width, height, x, y } = frame;
    const { top, right, bottom, left } = MARGIN;
    const floor = height - bottom;
    const group = svg("g", { class: "axes" });
    for (const { value, text } of y.marks(6)) {
      const place = y.place(value);
      group.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: place, y2: place }));
      group.append(svg("text", { x: left - 8, y: place, dy: "0.32em", "text-anchor": "end" }, text));
    }
    for (const { value, text } of x.marks(Math.max(4, Math.floor(width / 110)))) {
      const place = x.place(value);
      group.append(svg("line", { class: "tick", x1: place, x2: place, y1: floor, y2: floor + 5 }));
      const anchor = place > width - 34 ? "end" : "middle";
      const at = anchor === "end" ? width - 2 : place;
      group.append(svg("text", { x: at, y: floor + 18, "text-anchor": anchor }, text));
    }
    group.append(svg("line", { class: "base", x1: left, x2: width - right, y1: floor, y2: floor }));
    const name = { class: "name", "text-anchor": "middle" };
    const [across, up] = [(left + width - right) / 2, (top + floor) / 2];
    group.append(svg("text", { ...name, x: across, y: height - 6 }, what.xName));
    group.append(svg("text", { ...name, x: 13, y: up, transform: `rotate(-90 13 ${up})` }, what.yName));
    return group;
  }

  function line({ colour, dashed, x, y }, index) {
    const { x: across, y: up } = frame;
    const points = x.map((value, i) => [across.place(value), up.place(y[i])]);
    const path = points.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join(" ");
    const dots = points.length > 60 ? [] : points.map(([cx, cy]) => svg("circle", { cx, cy, r: 2.6 }));
    const kind = lit === null ? "" : lit === index ? " lit" : " dim";
    const shape = svg("polyline", { points: path, "stroke-dasharray": dashes({ dashed }) });
    return svg("g", { class: `line${kind}`, style: `--model: ${colour}` }, shape, dots);
  }

  /** Show what the lines are at a value of the horizontal axis; hide it for null. */
  function read(value, height = null) {
    cursor = value;
    const group = canvas.querySelector(".cursor");
    group.replaceChildren();
    readout.hidden = value === null;
    if (value === null) return;
    const { x, y } = frame;
    const reach = 0.04 * (x.place(view[1]) - x.place(view[0]));
    const inReach = ({ px, step }) => Math.abs(px - x.place(value)) <= reach && step >= view[0] && step <= view[1];
    let found = what.series
      .map((line) => {
        const at = nearest(line.x, value);
        return { ...line, px: x.place(line.x[at]), py: y.place(line.y[at]), step: line.x[at], value: line.y[at] };
      })
      .filter(inReach);
    const near = (point) => (height === null ? 0 : Math.abs(point.py - height));
    found = found.sort((a, b) => near(a) - near(b)).slice(0, MAX_READ).sort((a, b) => a.py - b.py);
    if (!found.length) {
      readout.hidden = true;
      return;
    }
    const { top, bottom } = MARGIN;
    const place = x.place(value);
    group.append(svg("line", { x1: place, x2: place, y1: top, y2: frame.height - bottom }));
    for (const { px, py, colour } of found) {
      group.append(svg("circle", { cx: px, cy: py, r: 4.5, style: `--model: ${colour}` }));
    }
    const more = what.series.length > MAX_READ ? "The lines nearest to the pointer." : null;
    readout.replaceChildren(
      el("p", { class: "at" }, `${what.xName} ${readable(value)}`),
      el("ul", {}, found.map(readEntry)),
      more && found.length === MAX_READ ? el("p", { class: "more" }, more) : "",
    );
    putAside(place > (MARGIN.left + frame.width) / 2);
  }

  /** Put the readout on the side where the pointer is not, above or below, wherever there are fewer points. */
  function putAside(left) {
    const { x, y, width, height } = frame;
    const [across, up] = [(MARGIN.left + width) / 2, height / 2];
    let above = 0;
    for (const line of what.series) {
      line.x.forEach((value, i) => {
        if (value < view[0] || value > view[1] || x.place(value) < across !== left) return;
        above += y.place(line.y[i]) < up ? 1 : -1;
      });
    }
    Object.assign(readout.style, {
      left: left ? `${MARGIN.left + 6}px` : "auto",
      right: left ? "auto" : `${MARGIN.right + 4}px`,
      top: above > 0 ? "auto" : `${MARGIN.top + 2}px`,
      bottom: above > 0 ? `${MARGIN.bottom + 6}px` : "auto",
    });
  }

  const readEntry = ({ colour, label, value }) =>
    el("li", {}, swatch(colour), el("span", {}, label), el("b", {}, readable(value)));

  function speak() {
    const entry = (item) => [...item.children].slice(1).map((part) => part.textContent);
    const values = [...readout.querySelectorAll("li")].map((item) => entry(item).join(" "));
    spoken.textContent = readout.hidden ? "" : `${what.xName} ${readable(cursor)}: ${values.join("; ")}`;
  }

  /** The values at which there is a point in sight. */
  function stops() {
    const all = new Set(what.series.flatMap((line) => line.x).filter((value) => value >= view[0] && value <= view[1]));
    return [...all].sort((a, b) => a - b);
  }

  function pointed(event) {
    const inside = canvas.getBoundingClientRect();
    const place = ((event.clientX - inside.left) / inside.width) * frame.width;
    const { left, right } = MARGIN;
    return [Math.min(Math.max(place, left), frame.width - right), event.clientY - inside.top];
  }

  function follow(event) {
    const [place, height] = pointed(event);
    const brush = canvas.querySelector(".brush");
    if (drag === null || Math.abs(place - drag) < CLICK) {
      brush.setAttribute("width", 0);
      const at = stops();
      read(at.length ? at[nearest(at, frame.x.value(place))] : null, height);
    } else {
      read(null);
      brush.setAttribute("x", Math.min(place, drag));
      brush.setAttribute("width", Math.abs(place - drag));
    }
  }

  function drop(event) {
    if (drag === null) return;
    const [start, [place]] = [drag, pointed(event)];
    drag = null;
    canvas.querySelector(".brush").setAttribute("width", 0);
    if (Math.abs(place - start) >= CLICK) zoom(frame.x.value(start), frame.x.value(place));
  }

  function press(event) {
    const at = stops();
    if (event.ctrlKey || event.metaKey || event.altKey || !at.length) return;
    const here = cursor === null ? -1 : nearest(at, cursor);
    const [first, last] = view.map(frame.x.place);
    const middle = cursor === null ? (first + last) / 2 : frame.x.place(cursor);
    const scaled = (factor) => zoom(...[first, last].map((place) => frame.x.value(middle + (place - middle) * factor)));
    const keys = {
      ArrowLeft: () => read(at[here < 0 ? at.length - 1 : Math.max(here - 1, 0)]),
      ArrowRight: () => read(at[Math.min(here + 1, at.length - 1)]),
      Home: () => read(at[0]),
      End: () => read(at[at.length - 1]),
      "+": () => scaled(0.5),
      "=": () => scaled(0.5),
      "-": () => scaled(2),
      0: reset,
      Escape: reset,
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
    speak();
  }

  function reset() {
    [view, cursor] = [whole, null];
    draw();
  }

  function highlight(index) {
    lit = index;
    canvas.querySelectorAll(".line").forEach((group, place) => {
      group.classList.toggle("lit", lit === place);
      group.classList.toggle("dim", lit !== null && lit !== place);
    });
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    [drag] = pointed(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", follow);
  canvas.addEventListener("pointerup", (event) => {
    drop(event);
    follow(event);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
    canvas.querySelector(".brush").setAttribute("width", 0);
  });
  canvas.addEventListener("pointerleave", (event) => {
    if (drag === null && event.pointerType === "mouse") read(null);
  });
  canvas.addEventListener("blur", () => read(null));
  canvas.addEventListener("dblclick", reset);
  canvas.addEventListener("keydown", press);
  let drawnAt = 0;
  new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== drawnAt) {
      drawnAt = box.clientWidth;
      draw();
    }
  }).observe(box);
  return { show, reset, highlight };
}

/** Of the lines of models that read the future. */
const dashes = ({ dashed }) => (dashed ? "7 4" : null);
