// The strips of all rounds: a bar each, to point at and to step through; the timeline shows the one that is picked.
const POINTER = 9, TALL = 32, MARKS = 9;            // heights of a strip's lanes: the pointer, bars, marks
const OUTCOMES = {c: "completed", f: "failed", s: "skipped"};
const stripData = $("strips-data") ? JSON.parse($("strips-data").textContent) : {rows: []};
const strips = stripData.rows.map((bars, n) => {
  const box = document.querySelectorAll(".strip")[n], why = new Map(bars.why.map(([j, reason]) => [j, bars.reasons[reason]]));
  return {...bars, why, box, canvas: box.firstChild, place: stripData.places[n], n: bars.us.length,
    most: bars.us.reduce((a, b) => Math.max(a, b), 1), at: 0};
});
const shownNow = {place: -1, rounds: new Set(), picked: -1};

// After the timeline has changed: mark what it shows, and of several rounds the one that was picked.
function drawStrips(picked = -1) {
  const place = +$("tl-protocol").value, rounds = protocol(place).views[+$("tl-view").value].rounds.map(([round]) => round);
  Object.assign(shownNow, {place, rounds: new Set(rounds), picked: rounds.length > 1 ? picked : rounds[0]});
  strips.forEach(drawStrip);
}

function drawStrip(strip) {
  const {box, canvas, us, outcome, held, n} = strip, ratio = window.devicePixelRatio || 1;
  const wide = box.clientWidth, high = POINTER + TALL + MARKS, base = POINTER + TALL;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  const to = canvas.getContext("2d"), each = wide / stripData.slots, bar = Math.max(1.5, each > 3 ? each - 1 : each);
  to.scale(ratio, ratio);
  for (const kind of "csf") {                       // what failed lies on top where bars are narrower than a pixel
    to.fillStyle = to.strokeStyle = theme[kind === "f" ? "bad" : "soft"];
    for (let j = 0; j < n; j++) {
      if (outcome[j] !== kind) continue;
      const tall = Math.max(1, us[j] / strip.most * TALL), middle = (j + .5) * each;
      to.globalAlpha = {c: .7, s: bar > 4 ? .2 : .4, f: 1}[kind];
      to.fillRect(j * each, base - tall, bar, tall);
      to.globalAlpha = 1;
      if (kind === "s" && bar > 4) to.strokeRect(j * each + .5, base - tall + .5, bar - 1, tall);
      if (kind === "f") to.fillRect(middle - 1, base + 4, 2, MARKS - 4);
      if (kind === "s") to.fillRect(middle - 1, base + 5, 2, 2);
    }
  }
  to.fillStyle = theme.hair;
  to.fillRect(0, base, n * each, 1);
  to.fillStyle = theme.ink;
  for (let j = 0; j < n; j++) {
    if (held[j] === "1") to.fillRect(j * each, base, each, 2);
    if (strip.place !== shownNow.place || !shownNow.rounds.has(strip.round[j])) continue;
    const middle = (j + .5) * each;
    if (shownNow.rounds.size > 1) to.fillRect(j * each, 1, each, 1);
    if (strip.round[j] !== shownNow.picked) continue;
    to.beginPath();
    to.moveTo(middle - 4, 1);
    to.lineTo(middle + 4, 1);
    to.lineTo(middle, 7);
    to.fill();
  }
  if (document.activeElement !== box) return;
  to.strokeStyle = theme.focus;
  to.lineWidth = 2;
  to.strokeRect(Math.max(1, strip.at * each - 1), POINTER - 1, bar + 2, TALL + 4);
}

// The bar under a place; of bars narrower than a pointer's tip, the longest around it.
function barAt(strip, px) {
  const each = strip.box.clientWidth / stripData.slots, near = each < 4 ? 2 : 0;
  const bar = at => Math.max(0, Math.min(strip.n - 1, Math.floor(at / each)));
  let best = bar(px - near);
  for (let j = best; j <= bar(px + near); j++) if (strip.us[j] > strip.us[best]) best = j;
  return best;
}

const roundName = (strip, round) => `${stripData.unit} ${round} of ${meta.protocols[strip.place].name}`;

function tellBar(strip, j) {
  const lines = [`${time(strip.us[j])}, ${OUTCOMES[strip.outcome[j]]}`];
  if (strip.why.has(j)) lines.push(strip.why.get(j));
  if (strip.held[j] !== "1") lines.push("not in this page's timeline");
  return lines;
}

function showBar(strip, j) {
  const box = strip.box.getBoundingClientRect(), round = strip.round[j], lines = tellBar(strip, j);
  show(roundName(strip, round), lines, box.left + (j + .5) * box.width / stripData.slots, box.bottom - MARKS);
  strip.box.setAttribute("aria-valuenow", round);
  strip.box.setAttribute("aria-valuetext", `${round}: ${lines.join(", ")}`);
}

// Show a round in the timeline, or show how to get a page that does.
function pick(strip, round) {
  const view = protocol(strip.place).views.findIndex(v => v.rounds.some(([index]) => index === round));
  const picked = $("strips-picked"), name = roundName(strip, round);
  picked.hidden = false;
  if (view < 0) {
    const command = document.createElement("code");
    command.textContent = `simfl report . --round ${round}`;
    picked.replaceChildren(`This page's timeline does not hold ${name}. In the run's folder, `, command, " writes a page that opens on it.");
    return;
  }
  picked.replaceChildren(`The timeline below shows ${name}: ${tellBar(strip, strip.round.indexOf(round)).join(", ")}.`);
  openRound(strip.place, view, round);
  tl.scrollIntoView({block: "nearest"});
}

function openRound(place, view, round) {
  $("tl-protocol").value = place;
  choose(false, view);
  const {rounds} = protocol(place).views[view];
  if (rounds.length > 1) lookAt(rounds.find(([index]) => index === round));
  drawStrips(round);
}

// The requested round and user.
function openAsked() {
  if (!meta.focus) return;
  const {round, user, protocol: name} = meta.focus, place = meta.protocols.findIndex(p => p.name === name);
  if (user !== null) {
    $("tl-users").value = user;
    filter();
  }
  openRound(place, protocol(place).views.findIndex(v => v.rounds.some(([index]) => index === round)), round);
  if (!location.hash) $("timeline").scrollIntoView({behavior: "instant"});
}

function stepBar(strip, key) {
  const tenth = Math.ceil(strip.n / 10);
  const to = {ArrowRight: strip.at + 1, ArrowUp: strip.at + 1, ArrowLeft: strip.at - 1, ArrowDown: strip.at - 1,
    PageDown: strip.at + tenth, PageUp: strip.at - tenth, Home: 0, End: strip.n - 1}[key];
  if (to === undefined) return false;
  strip.at = Math.max(0, Math.min(strip.n - 1, to));
  drawStrip(strip);
  showBar(strip, strip.at);
  return true;
}

for (const strip of strips) {
  const {box} = strip, under = event => barAt(strip, event.clientX - box.getBoundingClientRect().left);
  box.addEventListener("pointermove", event => showBar(strip, under(event)));
  box.addEventListener("pointerleave", () => hide());
  box.addEventListener("click", event => {
    strip.at = under(event);
    showBar(strip, strip.at);
    pick(strip, strip.round[strip.at]);
    drawStrip(strip);
    hide();
  });
  box.addEventListener("focus", () => { drawStrip(strip); if (box.matches(":focus-visible")) showBar(strip, strip.at); });
  box.addEventListener("blur", () => { hide(); drawStrip(strip); });
  box.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") pick(strip, strip.round[strip.at]);
    else if (!stepBar(strip, event.key)) return;
    event.preventDefault();
  });
  box.parentElement.querySelector(".longest").addEventListener("click", event => {
    const round = +event.currentTarget.dataset.round;
    strip.at = strip.round.indexOf(round);
    pick(strip, round);
    drawStrip(strip);
  });
  new ResizeObserver(() => drawStrip(strip)).observe(box);
}
