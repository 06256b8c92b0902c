// Moving about in the timeline: filters, zoom and pan, the pointer, and the same by keyboard.
const tip = $("tip");

function show(title, lines, px, py) {
  tip.replaceChildren();
  const head = document.createElement("b");
  head.textContent = title;
  tip.append(head, ...lines.map(text => {
    const part = document.createElement("span");
    part.textContent = text;
    return part;
  }));
  tip.hidden = false;
  tip.style.left = 0;                               // or its width is what was left of the window
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, px + 14), window.innerWidth - box.width - 8);
  const above = py - box.height - 12, below = py + 18;
  tip.style.left = `${left}px`;
  tip.style.top = `${below + box.height < window.innerHeight ? below : Math.max(8, above)}px`;
}

const hide = () => { tip.hidden = true; };

function zoom(factor, about = (state.from + state.to) / 2) {
  const {length} = state.view, span = Math.min(length * 1.02, Math.max(20, (state.to - state.from) * factor));
  const part = (about - state.from) / (state.to - state.from);
  move(about - part * span, span);
}

// Look at `span` microseconds from `from`, within the view and a little air.
function move(from, span = state.to - state.from) {
  const {length} = state.view, air = .01 * length;
  state.from = Math.max(-air, Math.min(from, length + air - span));
  state.to = state.from + span;
  draw();
}

function fit() {
  move(-.01 * state.view.length, 1.02 * state.view.length);
}

// The span under a point of the canvas, or -1: the nearest within four pixels, of equals the shortest.
function hit(px, py) {
  const {view} = state, row = rowAt(py);
  if (!row || row.party === null || px < GUTTER) return -1;
  const y = py + tl.scrollTop, slack = 4 * (state.to - state.from) / width(), t = at(px);
  let best = -1, least = [Infinity, Infinity, Infinity];
  for (const i of view.rows.get(row.party) ?? []) {
    if (view.start[i] - slack > t || view.end[i] + slack < t || !shows(i)) continue;
    const [top, h] = laneBox(row, view.lane[i]);
    const off = [Math.max(0, top - y, y - top - h), Math.max(0, view.start[i] - t, t - view.end[i]),
      view.end[i] - view.start[i]];
    const k = off.findIndex((value, place) => value !== least[place]);
    if (k >= 0 && off[k] < least[k]) [best, least] = [i, off];
  }
  return best;
}

const rowAt = py => py < AXIS ? null : state.rows.find(r => r.y <= py + tl.scrollTop && py + tl.scrollTop < r.y + r.height);

function markAt(px, py) {
  const row = rowAt(py);
  const near = mark => row && mark[1] === row.party && Math.abs(x(mark[0]) - px) < 6;
  return state.view.marks.filter(near);
}

function hover(event) {
  const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
  const row = rowAt(py), found = markAt(px, py), i = hit(px, py);
  if (found.length) {
    return show(who(found[0][1]), found.slice(0, 6).map(m => `${time(m[0])}: ${m[3]}`), event.clientX, event.clientY);
  }
  if (i >= 0) {
    const {title, lines} = describe(state.view, i);
    return show(title, lines, event.clientX, event.clientY);
  }
  if (row?.party === null && px > GUTTER) {
    const {times, counts, most} = state.view.load[row.load], k = times.findLastIndex(t => t <= at(px));
    const way = row.load ? "to the server" : "to users";
    return show(`${k < 0 ? 0 : counts[k]} messages under way ${way}`, [`at ${time(Math.round(at(px)))}; at most ${most}`],
      event.clientX, event.clientY);
  }
  hide();
}

// --- the pointer ---
let drag = null;
function pointer() {
  canvas.addEventListener("pointerdown", event => { drag = {x: event.clientX, from: state.from, moved: false}; });
  canvas.addEventListener("pointermove", event => {
    if (!drag || !event.buttons) return hover(event);
    const by = event.clientX - drag.x;
    if (!drag.moved && Math.abs(by) < 4) return;
    if (!drag.moved) canvas.setPointerCapture(event.pointerId);
    drag.moved = true;
    hide();
    move(drag.from - by / width() * (state.to - state.from));
  });
  canvas.addEventListener("pointerup", event => {
    if (drag && !drag.moved) { hover(event); state.focus = hit(...place(event)); draw(); }
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => { drag = null; hide(); });
  canvas.addEventListener("dblclick", event => zoom(.4, at(place(event)[0])));
  tl.addEventListener("wheel", event => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), at(place(event)[0]));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(state.from + event.deltaX / width() * (state.to - state.from));
    else return;
    event.preventDefault();
  }, {passive: false});
  tl.addEventListener("scroll", () => { hide(); draw(); });
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

// --- the keyboard ---
const inRow = party => (state.view.rows.get(party) ?? []).filter(shows);

function select(i) {
  if (i === undefined || i < 0) return;
  const {view} = state, row = state.of.get(view.party[i]), span = state.to - state.from;
  if (!row) return;
  state.focus = i;
  if (view.end[i] < state.from || view.start[i] > state.to) move(view.start[i] - span / 3);
  if (row.y - AXIS < tl.scrollTop) tl.scrollTop = row.y - AXIS - 6;
  if (row.y + row.height > tl.scrollTop + tl.clientHeight) tl.scrollTop = row.y + row.height - tl.clientHeight + 6;
  requestAnimationFrame(() => {                     // after the event of a scroll, which hides the tip
    paint();
    const box = canvas.getBoundingClientRect(), {title, lines} = describe(view, i);
    const [y, h] = laneBox(row, view.lane[i]);
    show(title, lines, box.left + Math.max(GUTTER, Math.min(x(view.start[i]), box.width - 40)), box.top + y + h - tl.scrollTop);
  });
}

function step(by) {
  const {view, focus} = state;
  if (focus < 0) return select(first());
  const row = inRow(view.party[focus]), k = row.indexOf(focus);
  select(row[Math.max(0, Math.min(row.length - 1, k + by))]);
}

const first = () => inRow(SERVER)[0] ?? state.rows.flatMap(r => r.party === null ? [] : inRow(r.party))[0];

function change(by) {
  const {view, focus} = state;
  if (focus < 0) return select(first());
  let k = state.rows.findIndex(r => r.party === view.party[focus]);
  for (k += by; k >= 2 && k < state.rows.length; k += by) {      // the next row that has anything
    const row = inRow(state.rows[k].party), t = view.start[focus];
    if (row.length) return select(row.reduce((a, b) => Math.abs(view.start[b] - t) < Math.abs(view.start[a] - t) ? b : a));
  }
}

function end(last) {
  if (state.focus < 0) return select(first());
  select(inRow(state.view.party[state.focus]).at(last ? -1 : 0));
}

const KEYS = {
  ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => change(1), ArrowUp: () => change(-1),
  Home: () => end(false), End: () => end(true), Enter: () => select(state.view.after[state.focus]),
  "+": () => zoom(.5, focusTime()), "=": () => zoom(.5, focusTime()), "-": () => zoom(2, focusTime()), 0: fit,
  Escape: () => { state.focus = -1; hide(); draw(); },
};
const focusTime = () => state.focus < 0 ? undefined : Math.min(state.to, Math.max(state.from, state.view.start[state.focus]));

function keyboard() {
  tl.addEventListener("keydown", event => {
    const by = {ArrowLeft: -.2, ArrowRight: .2}[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.shiftKey && by) move(state.from + by * (state.to - state.from));
    else if (KEYS[event.key]) KEYS[event.key]();
    else return;
    event.preventDefault();
  });
  tl.addEventListener("blur", hide);
}

// --- filters ---
function option(select, value, text) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = text;
  select.append(made);
}

function choose(keep, asked = null) {
  const k = +$("tl-protocol").value, shown = $("tl-view"), before = keep ? shown.selectedOptions[0]?.textContent : null;
  shown.replaceChildren();
  protocol(k).views.forEach((view, index) => option(shown, index, view.label.replace(/^(round|aggregations?) /, "")));
  const again = [...shown.options].find(o => o.textContent === before);
  shown.value = asked ?? (again ? again.value : meta.protocols[k].first);
  look();
}

function look() {
  const k = +$("tl-protocol").value, info = meta.protocols[k];
  state.view = unpack(k, +$("tl-view").value);
  state.focus = -1;
  hide();
  const one = typical(protocol(k).views[+$("tl-view").value]);
  const opens = one ? ` It opens on aggregation ${one[0]}; Fit shows all.` : "";
  const left = info.left_out ? ` This page holds ${info.left_out}.` : "";
  $("tl-caption").textContent = `${state.view.label[0].toUpperCase()}${state.view.label.slice(1)}, ${info.name}: from `
    + `${time(state.view.base / 1e3)} of ${meta.time} time on, ${time(state.view.length)} long.${opens}${left}`;
  layout();
  if (one) lookAt(one); else fit();
  drawStrips(one?.[0]);
}

// Of a view of several aggregations the one of median length: all of them together are a grey block.
function typical({rounds}) {
  if (rounds.length < 2) return null;
  return [...rounds].sort((a, b) => (a[2] - a[1]) - (b[2] - b[1]))[rounds.length >> 1];
}

function lookAt([, from, to]) {
  const span = Math.max(20, 1.1 * (to - from));
  move((from + to - span) / 2, span);
}

function filter() {
  const chosen = userFilter($("tl-users").value);
  $("tl-users").setAttribute("aria-invalid", chosen === null);
  if (chosen) state.users = chosen;
  state.phases = [...document.querySelectorAll("[data-phase]")].map(box => box.checked);
  state.pathOnly = $("tl-path").checked;
  if (state.focus >= 0) { state.focus = -1; hide(); }
  layout();
  draw();
}

if (tl) {
  readTheme();
  state.phases = meta.phases.map(() => true);
  meta.protocols.forEach((p, k) => { if (p.views) option($("tl-protocol"), k, p.name); });
  $("tl-protocol").value = meta.protocols.findLastIndex(p => p.views);     // baselines tend to come first
  $("tl-protocol").addEventListener("change", () => choose(true));
  $("tl-view").addEventListener("change", look);
  for (const box of document.querySelectorAll("[data-phase], #tl-path")) box.addEventListener("change", filter);
  $("tl-users").addEventListener("input", filter);
  $("tl-in").addEventListener("click", () => zoom(.5));
  $("tl-out").addEventListener("click", () => zoom(2));
  $("tl-fit").addEventListener("click", fit);
  pointer();
  keyboard();
  new ResizeObserver(draw).observe(tl);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); draw(); });
  choose(false);
  filter();
  openAsked();
}
