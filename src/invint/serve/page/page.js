"use strict";

// One request brings the answers at every angle; after it the hand is followed without asking.

const SVG = "http://www.w3.org/2000/svg";
const KEPT = 12; // images tried that the page remembers
const SLOWLY = 36; // degrees a second
const MANY = 200; // images in one list
const AT_ONCE = 4; // of them asked for at a time
const BARS = 10; // classes shown beside each network
const CHART = { left: 40, right: 8, top: 26, bottom: 24, width: 400, height: 220 };

const part = (id) => document.getElementById(id);
const state = { model: null, cards: [], turns: null, angle: 0, playing: false, asked: null, tried: [], url: null, list: null, stream: null, taken: 0 };

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const percent = (value) => `${(100 * value).toFixed(value > 0.0995 ? 0 : 1)}\u00a0%`;
const around = (angle) => ((angle % 360) + 360) % 360;

function say(message) {
  part("message").textContent = message;
  part("message").hidden = !message;
}

// Where things are

function nearest() {
  const count = state.turns.angles.length;
  return Math.round((around(state.angle) * count) / 360) % count;
}

function point(angle, radius) {
  const turn = (angle * Math.PI) / 180; // counter-clockwise from the top
  return `${(-radius * Math.sin(turn)).toFixed(2)} ${(-radius * Math.cos(turn)).toFixed(2)}`;
}

function arc(from, to, radius) {
  if (to - from >= 359.99) return `${arc(from, from + 180, radius)} ${arc(from + 180, from + 359.9, radius)}`;
  return `M ${point(from, radius)} A ${radius} ${radius} 0 ${to - from > 180 ? 1 : 0} 0 ${point(to, radius)}`;
}

/* Neighbouring angles with one label: {label, from, to} in degrees, cut at the top of the circle. */
function runs(labels) {
  const step = 360 / labels.length;
  const found = [];
  labels.forEach((label, i) => {
    const last = found[found.length - 1];
    if (last && last.label === label) last.to = (i + 0.5) * step;
    else found.push({ label, from: Math.max(0, (i - 0.5) * step), to: (i + 0.5) * step });
  });
  found[found.length - 1].to = 360;
  return found;
}

// The dial

function drawTicks() {
  for (let angle = 0; angle < 360; angle += 15) {
    const quarter = angle % 90 === 0;
    const [x1, y1] = point(angle, quarter ? 150 : 155).split(" ");
    const [x2, y2] = point(angle, 160).split(" ");
    part("ticks").append(drawn("line", { x1, y1, x2, y2, class: quarter ? "quarter" : "" }));
  }
}

function drawRings() {
  part("rings").replaceChildren();
  const radii = state.cards.length > 1 ? [187, 176] : [182];
  radii.forEach((radius, i) => {
    if (!state.turns) {
      part("rings").append(drawn("path", { d: arc(0, 360, radius), class: "idle" }));
      return;
    }
    const labels = state.turns.curves[i].labels;
    for (const run of runs(labels)) {
      const kind = run.label === labels[0] ? "same" : "other";
      part("rings").append(drawn("path", { d: arc(run.from, run.to, radius), class: kind }));
    }
  });
}

function pointerAngle(event) {
  const box = part("dial").getBoundingClientRect();
  const x = event.clientX - box.left - box.width / 2;
  const y = event.clientY - box.top - box.height / 2;
  return { angle: (Math.atan2(-x, -y) * 180) / Math.PI, distance: Math.hypot(x, y) / (box.width / 2) };
}

function listenToDial() {
  const dial = part("dial");
  let last = null;
  dial.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const { angle, distance } = pointerAngle(event);
    dial.setPointerCapture(event.pointerId);
    dial.classList.add("turning");
    play(false);
    if (distance > 0.78) turnTo(angle);
    last = angle;
  });
  dial.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const { angle } = pointerAngle(event);
    turnTo(state.angle + angle - last);
    last = angle;
  });
  const stop = () => { last = null; dial.classList.remove("turning"); };
  dial.addEventListener("pointerup", stop);
  dial.addEventListener("pointercancel", stop);
  dial.addEventListener("keydown", (event) => {
    const step = 360 / (state.turns ? state.turns.angles.length : 120);
    const moves = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: 15, PageDown: -15 };
    if (event.key in moves) turnTo(state.angle + moves[event.key]);
    else if (event.key === "Home") turnTo(0);
    else if (event.key === "End") turnTo(360 - step);
    else return;
    play(false);
    event.preventDefault();
  });
}

function play(on) {
  state.playing = on;
  part("play").setAttribute("aria-pressed", String(on));
  part("play").textContent = on ? "Stop" : "Turn slowly";
  if (!on) return;
  let before = performance.now();
  const frame = (now) => {
    if (!state.playing) return;
    turnTo(state.angle + (SLOWLY * (now - before)) / 1000);
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

let announcement = 0;

function turnTo(angle) {
  state.angle = around(angle);
  const shown = Math.round(state.angle) % 360;
  part("angle").textContent = `${shown}°`;
  part("image").style.transform = `rotate(${-state.angle}deg)`;
  part("handle").setAttribute("transform", `rotate(${-state.angle})`);
  const dial = part("dial");
  dial.setAttribute("aria-valuenow", shown);
  dial.setAttribute("aria-valuetext", shown ? `${shown} degrees counter-clockwise` : "upright");
  if (!state.turns) return;
  state.cards.forEach((card, i) => showAngle(card, state.turns.curves[i]));
  clearTimeout(announcement);
  announcement = setTimeout(announce, 500);
}

function announce() {
  const said = state.turns.curves.map((curve) => {
    const label = curve.labels[nearest()];
    const value = curve.probabilities[nearest()][curve.classes.indexOf(label)];
    return `${curve.network}: ${state.model.classes[label]}, ${percent(value)}`;
  });
  part("status").textContent = `${Math.round(state.angle)} degrees. ${said.join(". ")}`;
}

// A card for each network

function makeCard(network, ring) {
  const named = !network.network || network.title.startsWith(network.network);
  const kind = [named ? "" : network.network,
    network.group ? `invariant, ${network.group}` : "ordinary", ring].filter(Boolean).join(" · ");
  const card = {
    answer: element("span", { className: "answer" }, "–"),
    bars: element("dl", { className: "bars" }),
    chart: drawn("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, class: "chart", role: "img" }),
    summary: element("p", { className: "summary" }, "Choose an image, or one of the samples."),
    rows: new Map(),
    short: element("span", {}, "–"),
  };
  part("answers").append(element("p", {}, element("span", { className: "note" }, network.title), card.short));
  card.root = element("article", { className: "card network" },
    element("header", {}, element("div", {}, element("h2", {}, network.title), element("p", { className: "kind" }, kind)), card.answer),
    element("div", { className: "parts" }, card.bars, card.chart), card.summary);
  card.chart.addEventListener("pointerdown", (event) => { card.dragging = true; fromChart(card, event); });
  card.chart.addEventListener("pointermove", (event) => { if (card.dragging) fromChart(card, event); });
  addEventListener("pointerup", () => { card.dragging = false; });
  drawGrid(card);
  drawBars(card, { classes: state.model.classes.map((_, i) => i), probabilities: [state.model.classes.map(() => 0)] });
  return card;
}

function fromChart(card, event) {
  const box = card.chart.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * CHART.width;
  play(false);
  turnTo(Math.min(359.9, Math.max(0, ((x - CHART.left) / (CHART.width - CHART.left - CHART.right)) * 360)));
}

const across = (angle) => CHART.left + (angle / 360) * (CHART.width - CHART.left - CHART.right);
const up = (value) => CHART.height - CHART.bottom - value * (CHART.height - CHART.top - CHART.bottom);

function drawGrid(card) {
  card.chart.replaceChildren();
  for (const value of [0, 0.5, 1]) {
    card.chart.append(drawn("line", { x1: across(0), x2: across(360), y1: up(value), y2: up(value), class: "grid" }));
    card.chart.append(drawn("text", { x: CHART.left - 6, y: up(value) + 4, class: "side" }, `${100 * value}%`));
  }
  for (const angle of [0, 90, 180, 270, 360]) {
    card.chart.append(drawn("line", { x1: across(angle), x2: across(angle), y1: up(0), y2: up(1), class: "grid" }));
    card.chart.append(drawn("text", { x: across(angle), y: CHART.height - 6 }, `${angle}°`));
  }
}

/* The probability of the likeliest class, in the colour of "the same answer as upright" or not. */
function drawCurve(card, curve) {
  drawGrid(card);
  const names = state.model.classes;
  const found = runs(curve.labels);
  for (const run of found) {
    const same = run.label === curve.labels[0];
    const width = across(run.to) - across(run.from);
    if (!same) card.chart.append(drawn("rect", { x: across(run.from), width, y: up(1), height: up(0) - up(1), class: "band" }));
    const name = names[run.label];
    if (width > 7 * name.length + 5) card.chart.append(drawn("text", { x: across(run.from) + width / 2, y: up(1) - 8, class: "name" }, name));
  }
  const step = 360 / curve.labels.length;
  const best = curve.labels.map((label, i) => curve.probabilities[i][curve.classes.indexOf(label)]);
  best.push(best[0]);
  for (const run of found) {
    const inside = best.map((value, i) => [i * step, value]).filter(([angle]) => angle >= run.from - 0.01 && angle <= run.to + 0.01);
    const d = inside.map(([angle, value], i) => `${i ? "L" : "M"} ${across(angle).toFixed(1)} ${up(value).toFixed(1)}`).join(" ");
    const end = inside.length === 1 ? " h 0.1" : "";
    card.chart.append(drawn("path", { d: d + end, class: run.label === curve.labels[0] ? "same" : "other" }));
  }
  card.cursor = drawn("line", { y1: up(0), y2: up(1) - 2, class: "cursor" });
  card.dot = drawn("circle", { r: 5, class: "dot" });
  card.chart.append(card.cursor, card.dot);
  summarize(card, curve, found);
}

function summarize(card, curve, found) {
  const label = curve.labels[0];
  const share = curve.labels.filter((each) => each === label).length / curve.labels.length;
  const changes = curve.labels.filter((each, i) => each !== curve.labels[(i + 1) % curve.labels.length]).length;
  const name = element("strong", {}, state.model.classes[label]);
  card.summary.replaceChildren();
  if (share === 1) card.summary.append("It says ", name, " at every angle.");
  else card.summary.append("It says ", name, ` upright and over ${(100 * share).toFixed(0)} % of the circle; the answer changes ${changes} times on the way round.`);
  const others = [...new Set(found.map((run) => run.label))].length - 1;
  card.chart.setAttribute("aria-label", `Probability of the likeliest class over the angle; ${others} other answers than upright`);
}

function drawBars(card, curve) {
  const most = curve.classes.map((_, column) => Math.max(...curve.probabilities.map((row) => row[column])));
  const columns = most.map((_, column) => column).sort((a, b) => most[b] - most[a]).slice(0, BARS).sort((a, b) => a - b);
  card.rows = new Map();
  card.bars.replaceChildren();
  for (const column of columns) {
    const fill = element("div", { className: "fill" });
    const value = element("dd", { className: "value" });
    const name = state.model.classes[curve.classes[column]];
    card.bars.append(element("dt", { title: name }, name), element("dd", { className: "track" }, fill), value);
    card.rows.set(column, { fill, value });
  }
}

function showAngle(card, curve) {
  const i = nearest();
  const label = curve.labels[i];
  const top = curve.classes.indexOf(label);
  for (const [column, { fill, value }] of card.rows) {
    const probability = curve.probabilities[i][column];
    fill.style.transform = `scaleX(${probability})`;
    fill.classList.toggle("top", column === top);
    fill.classList.toggle("changed", label !== curve.labels[0]);
    value.textContent = percent(probability);
  }
  const best = curve.probabilities[i][top];
  for (const place of [card.answer, card.short]) {
    place.replaceChildren(state.model.classes[label], element("small", {}, percent(best)));
    place.classList.toggle("changed", label !== curve.labels[0]);
  }
  const x = across(state.turns.angles[i]);
  card.cursor.setAttribute("x1", x);
  card.cursor.setAttribute("x2", x);
  card.dot.setAttribute("cx", x);
  card.dot.setAttribute("cy", up(best));
}

// Images

async function ask(address, file, signal) {
  for (let attempt = 0; ; attempt += 1) {
    const answer = await fetch(address, { method: "POST", body: file, headers: { "Content-Type": file.type || "application/octet-stream" }, signal });
    const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
    if (answer.ok) return content;
    if (answer.status !== 503 || attempt === 3) throw new Error(content.error);
    say("The server is busy; trying again…");
    await new Promise((resume) => { setTimeout(resume, 1000 * Number(answer.headers.get("Retry-After") || 1)); });
  }
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
}

function reason(error) {
  return error instanceof TypeError ? "The server cannot be reached; is it still running?" : sentence(error.message);
}

function tooLarge(file) {
  const limit = state.model.limits.upload_bytes;
  return file.size > limit && `This file has ${(file.size / 2 ** 20).toFixed(1)} MiB; at most ${limit / 2 ** 20} are taken.`;
}

/* One image is turned; of several each has a row. */
async function take(files) {
  await ready; // images may come before the networks are known
  if (!state.model) return;
  if (files.length === 1) look(files[0]);
  else list(files);
}

async function look(file, remembered = null) {
  const large = tooLarge(file);
  if (large) {
    say(large);
    return;
  }
  if (state.asked) state.asked.abort();
  const asked = new AbortController();
  state.asked = asked;
  part("frame").setAttribute("aria-busy", "true");
  const start = performance.now();
  try {
    const turns = remembered || await ask("/api/turns", file, asked.signal);
    if (asked.signal.aborted) return;
    say("");
    state.turns = turns;
    show(file, turns);
    part("time").textContent = remembered ? "" : `${turns.angles.length} angles, ${turns.curves.length} network${turns.curves.length > 1 ? "s" : ""}: ${(performance.now() - start).toFixed(0)} ms`;
    remember(file, turns);
  } catch (error) {
    if (error.name === "AbortError") return;
    say(reason(error));
  } finally {
    part("frame").removeAttribute("aria-busy");
  }
}

// Several images

async function list(files) {
  if (state.list) state.list.abort();
  state.list = new AbortController();
  const { signal } = state.list;
  const chosen = files.slice(0, MANY);
  say(files.length > MANY ? `A list holds ${MANY} images; the other ${files.length - MANY} are left out.` : "");
  part("several-title").textContent = `${chosen.length} images`;
  part("several-head").replaceChildren(...["image", ...state.model.networks.map((each) => each.title)]
    .map((title) => element("th", { scope: "col" }, title)));
  part("several-rows").querySelectorAll("img").forEach((image) => URL.revokeObjectURL(image.src));
  const rows = chosen.map((file) => makeRow(file));
  part("several-rows").replaceChildren(...rows.map((row) => row.root));
  part("several").hidden = false;
  part("several").scrollIntoView({ block: "nearest" });
  const left = [...rows];
  const worker = async () => { while (left.length && !signal.aborted) await answerRow(left.shift(), signal); };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (!signal.aborted) part("status").textContent = `${rows.length} images answered.`;
}

function makeRow(file) {
  const image = element("img", { src: URL.createObjectURL(file), alt: "" });
  image.addEventListener("error", () => { image.hidden = true; }); // a format only the server reads
  const button = element("button", { type: "button", title: file.name }, image, element("span", {}, file.name || "image"));
  const cells = state.model.networks.map(() => element("td", {}, "…"));
  const root = element("tr", {}, element("th", { scope: "row" }, button), ...cells);
  root.addEventListener("click", () => {
    part("several-rows").querySelector("[aria-current]")?.removeAttribute("aria-current");
    root.setAttribute("aria-current", "true");
    part("dial").scrollIntoView({ block: "nearest" });
    look(file);
  });
  return { file, cells, root };
}

async function answerRow({ file, cells, root }, signal) {
  try {
    const large = tooLarge(file);
    if (large) throw new Error(large);
    const { predictions } = await ask("/api/predict", file, signal);
    predictions.forEach((each, i) => cells[i].replaceChildren(element("strong", {}, each.label), element("small", {}, percent(each.probability))));
    const labels = new Set(predictions.map((each) => each.label));
    root.classList.toggle("differs", labels.size > 1);
  } catch (error) {
    if (error.name === "AbortError") return;
    const why = element("td", { className: "changed", colSpan: cells.length }, reason(error));
    cells[0].before(why);
    cells.forEach((cell) => cell.remove());
  }
}

// The camera

const REFUSALS = { NotAllowedError: "The browser does not allow the camera here; allow it beside the address.", NotFoundError: "There is no camera." };

async function openCamera() {
  if (!navigator.mediaDevices?.getUserMedia) {
    say("Browsers give the camera only to pages on this machine (localhost) or over https; open the page there.");
    return;
  }
  try {
    state.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    say(REFUSALS[error.name] || sentence(`The camera cannot be used: ${error.message}`));
    return;
  }
  say("");
  part("video").srcObject = state.stream;
  await part("video").play();
  showCamera(true);
}

function closeCamera() {
  state.stream.getTracks().forEach((track) => track.stop());
  state.stream = null;
  part("video").srcObject = null;
  showCamera(false);
}

function showCamera(on) {
  part("booth").hidden = !on;
  part("camera").textContent = on ? "Close the camera" : "Use the camera";
  part("camera").setAttribute("aria-expanded", String(on));
}

/* What the network will see is square: the middle of the frame. */
async function capture() {
  const video = part("video");
  const side = Math.min(video.videoWidth, video.videoHeight);
  const canvas = element("canvas", { width: side, height: side });
  canvas.getContext("2d").drawImage(video, (video.videoWidth - side) / 2, (video.videoHeight - side) / 2, side, side, 0, 0, side, side);
  const content = await new Promise((done) => { canvas.toBlob(done, "image/jpeg", 0.95); });
  state.taken += 1;
  look(new File([content], `camera-${state.taken}.jpg`, { type: "image/jpeg" }));
}

function show(file, turns) {
  const image = part("image");
  if (state.url) URL.revokeObjectURL(state.url);
  state.url = URL.createObjectURL(file);
  image.onerror = () => { image.onerror = null; image.src = turns.picture; }; // a format only the server reads
  image.src = state.url;
  image.alt = file.name ? `The image ${file.name}` : "The image";
  image.hidden = false;
  part("empty").hidden = true;
  part("frame").style.background = turns.background;
  state.cards.forEach((card, i) => { drawBars(card, turns.curves[i]); drawCurve(card, turns.curves[i]); });
  drawRings();
  turnTo(state.angle);
}

function remember(file, turns) {
  state.tried = [{ file, turns }, ...state.tried.filter((each) => each.turns !== turns && !alike(each.file, file))].slice(0, KEPT);
  part("tried-part").hidden = false;
  part("tried").replaceChildren(...state.tried.map((each, i) => {
    const name = each.file.name || "pasted image";
    const button = element("button", { type: "button", title: name }, element("img", { src: each.turns.picture, alt: name }));
    if (i === 0) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => look(each.file, each.turns));
    return button;
  }));
}

const alike = (one, other) => one.name === other.name && one.size === other.size && one.lastModified === other.lastModified;

function listenToFiles() {
  part("file").addEventListener("change", (event) => {
    if (event.target.files.length) take([...event.target.files]);
    event.target.value = "";
  });
  addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) take(files);
    else say("There is no image in what was pasted.");
  });
  let depth = 0;
  addEventListener("dragenter", (event) => { event.preventDefault(); depth += 1; part("drop").hidden = false; });
  addEventListener("dragleave", () => { depth -= 1; part("drop").hidden = depth > 0 ? part("drop").hidden : true; });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    part("drop").hidden = true;
    const files = [...event.dataTransfer.files];
    if (files.length) take(files);
    else say("There is no image in what was dropped; save it, then drop the file.");
  });
}

function drawSamples() {
  for (let digit = 0; digit < 10; digit += 1) {
    const name = `digit-${digit}.png`;
    const button = element("button", { type: "button", title: `The digit ${digit}` }, element("img", { src: `/samples/${name}`, alt: `The digit ${digit}` }));
    button.addEventListener("click", async () => {
      const content = await (await fetch(`/samples/${name}`)).blob();
      look(new File([content], name, { type: "image/png", lastModified: 0 }));
    });
    part("samples").append(button);
  }
}

async function begin() {
  drawTicks();
  listenToDial();
  listenToFiles();
  part("on").addEventListener("click", () => turnTo(Math.round(state.angle + 90)));
  part("back").addEventListener("click", () => turnTo(Math.round(state.angle - 90)));
  part("camera").addEventListener("click", () => (state.stream ? closeCamera() : openCamera()));
  part("capture").addEventListener("click", capture);
  part("play").addEventListener("click", () => play(!state.playing));
  try {
    const answer = await fetch("/api/model");
    if (!answer.ok) throw new Error((await answer.json()).error);
    state.model = await answer.json();
  } catch (error) {
    say(sentence(error.message));
    return;
  }
  const several = state.model.networks.length > 1;
  state.cards = state.model.networks.map((network, i) => makeCard(network, several ? ["outer ring", "inner ring"][i] : ""));
  part("networks").replaceChildren(...state.cards.map((card) => card.root));
  drawRings();
  drawSamples();
}

const ready = begin();
