const $ = id => document.getElementById(id), data = JSON.parse($("sweep-data").textContent);
const NS = "http://www.w3.org/2000/svg";
const colour = k => data.lines[k][0] === "ink" ? "var(--ink)" : data.lines[k][0];
const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
const shown = value => Math.abs(value) >= 1e5 ? value.toExponential(2) : value.toFixed(Math.abs(value) < 100 ? 3 : 1);

function fill(select, names, chosen = 0) {
  if (!select) return;
  names.forEach((name, k) => select.add(new Option(name, k)));
  select.selectedIndex = Math.min(chosen, names.length - 1);
}

function make(parent, tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
}

function ticks(high) {
  const rough = (high || 1) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough * (1 - 1e-9));
  return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 }, (_, k) => k * step);
}

function plot() {
  const m = +$("sw-measure").value, a = +$("sw-axis").value, axis = data.axes[a], holder = $("sw-plot");
  holder.replaceChildren();
  const known = data.entries.filter(e => e.values[m] && (!axis || e.at[a] !== null));
  if (!known.length) { holder.textContent = "No value."; return; }
  const width = holder.clientWidth, height = 340, left = 62, right = 16, bottom = 44, top = 10;
  const values = axis ? axis.values : [""], numbers = values.map(Number);
  const numeric = axis && values.length > 1 && values.every(v => v.trim() !== "" && Number.isFinite(Number(v)));
  const low = Math.min(...numbers), span = Math.max(...numbers) - low;
  const x = place => left + (width - left - right) * (numeric ? 0.04 + 0.92 * (numbers[place] - low) / span : (place + 0.5) / values.length);
  const all = ticks(Math.max(...known.map(e => e.values[m][0] + (e.values[m][1] || 0))));
  const y = value => height - bottom - (height - bottom - top) * value / all[all.length - 1];
  const svg = make(holder, "svg", { width: "100%", height, role: "img", "aria-label": `${data.measures[m]} over ${axis ? axis.label : "the only point"}` });
  all.forEach(tick => {
    make(svg, "line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) });
    make(svg, "text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, String(+tick.toPrecision(4)));
  });
  const room = Math.max(4, Math.floor((width - left - right) / values.length / 7));
  values.forEach((value, place) => make(svg, "text", { x: x(place), y: height - bottom + 18, "text-anchor": "middle" },
    value.length > room ? `${value.slice(0, room - 1)}…` : value));
  if (axis) make(svg, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, axis.label);
  data.protocols.forEach((name, k) => {
    const own = known.filter(e => e.protocol === k), shift = (k - (data.protocols.length - 1) / 2) * 5;
    const stroke = colour(k), line = [];
    values.forEach((_, place) => {
      const here = own.filter(e => !axis || e.at[a] === place);
      if (here.length) line.push(`${x(place) + shift},${y(mean(here.map(e => e.values[m][0])))}`);
    });
    make(svg, "polyline", { points: line.join(" "), fill: "none", style: `stroke: ${stroke}; stroke-width: 1.5; stroke-dasharray: ${data.lines[k][1] || "none"}` });
    own.forEach(e => {
      const [value, half] = e.values[m], at = x(axis ? e.at[a] : 0) + shift;
      if (half) make(svg, "line", { x1: at, x2: at, y1: y(Math.max(0, value - half)), y2: y(value + half), style: `stroke: ${stroke}` });
      const link = make(svg, "a", { href: `${e.folder}/` });
      const dot = make(link, "circle", { cx: at, cy: y(value), r: 4, style: `fill: ${stroke}` });
      const text = `${name}${e.label ? `, ${e.label}` : ""}: ${shown(value)}${half ? ` ± ${shown(half)}` : ""}`;
      link.setAttribute("aria-label", text);
      make(dot, "title", {}, text);
    });
  });
}

function heat() {
  if (!$("hm-table")) return;
  const [m, k, r, c] = ["measure", "protocol", "rows", "columns"].map(name => +$(`hm-${name}`).value);
  const rows = data.axes[r], columns = data.axes[c], table = $("hm-table");
  table.replaceChildren();
  const at = (i, j) => data.entries.filter(e => e.protocol === k && e.at[r] === i && e.at[c] === j && e.values[m]).map(e => e.values[m][0]);
  const cells = rows.values.map((_, i) => columns.values.map((_, j) => at(i, j)).map(found => found.length ? mean(found) : null));
  const known = cells.flat().filter(value => value !== null), low = Math.min(...known), high = Math.max(...known);
  const head = table.createTHead().insertRow(), corner = document.createElement("th");
  corner.textContent = r === c ? rows.label : `${rows.label} \\ ${columns.label}`;
  head.append(corner);
  columns.values.forEach(value => { const th = document.createElement("th"); th.scope = "col"; th.className = "n"; th.textContent = value; head.append(th); });
  const body = table.createTBody();
  rows.values.forEach((value, i) => {
    const row = body.insertRow(), th = document.createElement("th");
    th.scope = "row"; th.textContent = value; row.append(th);
    cells[i].forEach(cell => {
      const td = row.insertCell(), part = cell === null || high === low ? 0 : (cell - low) / (high - low);
      td.textContent = cell === null ? "–" : shown(cell);
      td.style.background = `color-mix(in srgb, #56B4E9 ${Math.round(70 * part)}%, transparent)`;
    });
  });
}

function front() {
  document.querySelectorAll("[data-world]").forEach(node => { node.style.display = +node.dataset.world === $("fr-world").selectedIndex ? "" : "none"; });
}

if ($("fr-world")) { $("fr-world").addEventListener("change", front); front(); }
["sw-measure", "hm-measure"].forEach(id => fill($(id), data.measures));
fill($("sw-axis"), data.axes.length ? data.axes.map(a => a.label) : ["the only point"]);
fill($("hm-protocol"), data.protocols);
["rows", "columns"].forEach((name, k) => fill($(`hm-${name}`), data.axes.map(a => a.label), data.pair?.[k]));
["measure", "axis"].forEach(name => $(`sw-${name}`).addEventListener("change", plot));
["measure", "protocol", "rows", "columns"].forEach(name => $(`hm-${name}`)?.addEventListener("change", heat));
addEventListener("resize", plot);
if (data.measures.length) { plot(); heat(); } else $("sw-plot").textContent = "No measure differs.";
