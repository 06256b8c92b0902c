// What the timeline shows: a view's columns unpacked, its rows, and which spans the filters let through.
const $ = id => document.getElementById(id);
const meta = JSON.parse($("timeline-meta").textContent);
const SERVER = -1;
const packed = [];                       // by protocol, read when it is first looked at

function protocol(k) {
  return packed[k] ??= JSON.parse($(`timeline-${k}`).textContent);
}

function unpack(k, index) {
  const {types, views} = protocol(k), raw = views[index], n = raw.s.length;
  const view = {label: raw.label, base: raw.start, length: Math.max(raw.length, 1), users: raw.users, n,
    path: raw.path, marks: raw.marks, start: new Float64Array(n), end: new Float64Array(n),
    party: Int32Array.from(raw.p), waited: raw.w, after: new Int32Array(n), lane: new Uint8Array(n),
    phase: new Uint8Array(n), onPath: new Uint8Array(n), rows: new Map(), type: raw.t, types};
  for (let i = 0, at = 0; i < n; i++) {
    at += raw.s[i];
    const [lane, phase] = types[raw.t[i]];
    view.start[i] = at;
    view.end[i] = at + raw.d[i];
    view.after[i] = raw.a[i] ? i - raw.a[i] : -1;
    view.lane[i] = lane;
    view.phase[i] = phase;
    if (!view.rows.has(view.party[i])) view.rows.set(view.party[i], []);
    view.rows.get(view.party[i]).push(i);
  }
  for (const piece of raw.path) if (piece[5] >= 0) view.onPath[piece[5]] = 1;
  view.load = [2, 3].map(lane => loads(view, lane));
  return view;
}

// How many messages are under way on a lane: [times, counts from then on, the most].
function loads(view, lane) {
  const changes = [];
  for (let i = 0; i < view.n; i++) {
    if (view.lane[i] === lane && view.end[i] > view.start[i]) changes.push([view.start[i], 1], [view.end[i], -1]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const times = [], counts = [];
  let now = 0;
  for (const [at, change] of changes) {
    now += change;
    if (times.length && times[times.length - 1] === at) counts[counts.length - 1] = now;
    else { times.push(at); counts.push(now); }
  }
  return {times, counts, most: counts.reduce((a, b) => Math.max(a, b), 0)};
}

// "3, 7-12" as a test of user numbers; empty for everyone, null where it cannot be read.
function userFilter(text) {
  if (!text.trim() || text.trim() === "all") return () => true;
  const parts = text.split(",").map(part => part.trim()).filter(Boolean);
  const ranges = parts.map(part => /^(?:user )?(\d+)(?:\s*[-–]\s*(\d+))?$/.exec(part));
  if (!ranges.every(Boolean)) return null;
  return user => ranges.some(([, low, high]) => user >= +low && user <= +(high ?? low));
}

function time(us) {
  const s = Math.abs(us);
  if (!s) return "0 s";
  if (s >= 1e6) return `${(us / 1e6).toFixed(s < 1e7 ? 3 : 2)} s`;
  if (s >= 1e3) return `${(us / 1e3).toFixed(s < 1e4 ? 2 : 1)} ms`;
  return `${us} µs`;
}

function bytes(count) {
  if (count >= 1e6) return `${(count / 1e6).toFixed(2)} MB`;
  return count >= 1e3 ? `${(count / 1e3).toFixed(2)} kB` : `${count} B`;
}

const who = party => party === SERVER ? "server" : `user ${party}`;

// The text on a span: a title and lines.
function describe(view, i) {
  const [lane, phase, text, size, note] = view.types[view.type[i]];
  const title = `${who(view.party[i])} · ${meta.phases[phase]}`;
  const what = [`${text} on the protocol lane`, `${text} on the training lane`,
    `message ${text} from the server, ${bytes(size)}`, `message ${text} to the server, ${bytes(size)}`][lane];
  const lines = [note ? `${what}, ${note}` : what, `${time(view.start[i])} to ${time(view.end[i])}: ${time(view.end[i] - view.start[i])}`];
  if (view.waited[i]) lines.push(`was ready ${time(view.waited[i])} before it started`);
  if (view.onPath[i]) lines.push("on the critical path");
  return {title, lines};
}
