"use strict";

const root = document.documentElement;
const remembered = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (remembered) root.dataset.theme = remembered;

document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(root).colorScheme.includes("dark");
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a reader without storage */ }
});

for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(table, heads, column));
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(table, heads, column); }
    });
  });
}

function sort(table, heads, column) {
  const up = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [keyOf(row.cells[column]), row]);
  rows.sort(([a], [b]) => compare(a, b, up));
  rows.forEach(([, row]) => body.append(row));
}

function keyOf(cell) {
  if (cell.dataset.value === undefined) return cell.textContent.trim();
  return cell.dataset.value === "" ? null : Number(cell.dataset.value);
}

function compare(a, b, up) {
  if (a === null || b === null) return (a === null) - (b === null); // what is missing stays last
  const order = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
  return up ? order : -order;
}

// A name in a legend hides what is drawn under its key: figures/style.py writes both attributes.
for (const name of document.querySelectorAll("svg [data-key]")) {
  name.addEventListener("click", () => {
    const svg = name.closest("svg");
    const off = !name.classList.contains("off");
    svg.querySelectorAll(`[data-key="${name.dataset.key}"]`).forEach((each) => each.classList.toggle("off", off));
    const hidden = [...svg.querySelectorAll("[data-key].off")].map((each) => each.dataset.key);
    for (const series of svg.querySelectorAll("[data-series]")) {
      series.classList.toggle("off", series.dataset.series.split(" ").some((key) => hidden.includes(key)));
    }
  });
}

// Alone in a file a figure has no page to take colours and fonts from: they are written into it.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  copy.querySelectorAll("[data-series].off").forEach((each) => each.remove());
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", width + 24);
  copy.setAttribute("height", height + 24);
  copy.setAttribute("viewBox", `-12 -12 ${width + 24} ${height + 24}`);
  const { color, fontFamily } = getComputedStyle(svg);
  const card = getComputedStyle(svg.closest("figure")).backgroundColor;
  copy.style.cssText = `color: ${color}; background: ${card}; font-family: ${fontFamily}`;
  const text = new XMLSerializer().serializeToString(copy).replace(/var\(--card[^)]*\)/g, card);
  return new Blob([text], { type: "image/svg+xml" });
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function savePicture(svg, name) {
  const image = new Image();
  const address = URL.createObjectURL(standalone(svg));
  image.addEventListener("load", () => {
    const canvas = document.createElement("canvas");
    canvas.width = 4 * image.width;
    canvas.height = 4 * image.height;
    const pen = canvas.getContext("2d");
    pen.fillStyle = getComputedStyle(svg.closest("figure")).backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => { save(blob, `${name}.png`); URL.revokeObjectURL(address); });
  });
  image.src = address;
}

for (const button of document.querySelectorAll("[data-save]")) {
  button.addEventListener("click", () => {
    const figure = button.closest("figure");
    const svg = figure.querySelector("svg");
    if (button.dataset.save === "svg") save(standalone(svg), `${figure.dataset.name}.svg`);
    else savePicture(svg, figure.dataset.name);
  });
}
