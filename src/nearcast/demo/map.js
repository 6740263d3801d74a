"use strict";
// The map that the pages share. Python inserts this file into each of them, in front of the page's own script, which
// defines paint() and bars() for drawing, hit(x, y) and select(found) for clicks, tell(x, y) and leave() for the
// pointer, and panned() for what happens when the map is moved by hand.
const $ = id => document.getElementById(id), data = JSON.parse($("data").textContent);
const M = data.messages, P = data.places ?? { name: [], kinds: [], kind: [], lon: [], lat: [] }, count = M.id.length;
const numbers = base64 => new Int32Array(Uint8Array.from(atob(base64), c => c.charCodeAt(0)).buffer);
const el = (tag, props, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
const figure = value => typeof value !== "number" ? value ?? "–"
  : value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : Math.abs(value) < 1000 ? 1 : 0 });
const plural = (n, word) => `${figure(n)} ${word}${n === 1 ? "" : "s"}`;
const wanted = expression => words(expression.replace(/\b(AND|OR|NOT)\b/g, ""));  // the words of an expression
const words = text => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
for (const [label, value] of data.summary)
  $("cards").append(el("div", {}, el("dt", { textContent: label }), el("dd", { textContent: figure(value) })));

// --- Projection and shapes ----------------------------------------------------------------------------------------
const canvas = $("canvas"), ctx = canvas.getContext("2d"), DEGREE = 111195;  // metres
const nowhere = () => [Infinity, Infinity, -Infinity, -Infinity];
const grow = (b, lon, lat) => [Math.min(b[0], lon), Math.min(b[1], lat), Math.max(b[2], lon), Math.max(b[3], lat)];
let extent = data.extent ?? nowhere();  // what the page shows at first
if (!data.extent) for (let m = 0; m < count; m++) if (M.lon[m] !== null) extent = grow(extent, M.lon[m], M.lat[m]);
if (extent[0] > extent[2]) extent = [-170, -60, 170, 75];
const cosine = lat => Math.cos(lat * Math.PI / 180), squeeze = cosine((extent[1] + extent[3]) / 2);
let width = 0, height = 0, view = { x: 0, y: 0, k: 1 }, fitK = 1, frame = null;  // k: pixels per degree; frame: what was last fitted
const X = lon => (lon - view.x) * squeeze * view.k + width / 2, Y = lat => (view.y - lat) * view.k + height / 2;

// A shape is [lon, lat, radius in metres], [xmin, ymin, xmax, ymax], a list of rings, or null for everywhere.
function bounds(shape) {
  if (typeof shape[0] !== "number") return shape.flat().reduce((b, v, i, all) => i % 2 ? grow(b, all[i - 1], v) : b, nowhere());
  if (shape.length === 4) return shape[0] <= shape[2] ? shape : [shape[0], shape[1], shape[2] + 360, shape[3]];
  const dy = shape[2] / DEGREE, dx = dy / cosine(shape[1]);
  return [shape[0] - dx, shape[1] - dy, shape[0] + dx, shape[1] + dy];
}
function outline(path, shape) {
  if (typeof shape[0] !== "number") {
    for (const ring of shape) {
      ring.forEach((v, i) => i % 2 && path[i === 1 ? "moveTo" : "lineTo"](X(ring[i - 1]), Y(v)));
      path.closePath();
    }
    return path;
  }
  const b = bounds(shape), x = X(b[0]), y = Y(b[3]), w = X(b[2]) - x, h = Y(b[1]) - y;
  if (shape.length === 4) path.rect(x, y, w, h);
  else { path.moveTo(x + w, y + h / 2); path.ellipse(x + w / 2, y + h / 2, w / 2, h / 2, 0, 0, 7); }
  return path;
}
const scaleFor = b => Math.min((width - 60) / Math.max((b[2] - b[0]) * squeeze, .01), (height - 60) / Math.max(b[3] - b[1], .01));
function fit(b, most = Infinity) {
  frame = [b, most];
  view = { x: (b[0] + b[2]) / 2, y: (b[1] + b[3]) / 2, k: Math.min(scaleFor(b), most) };
  draw();
}
function pan(dx, dy) { frame = null; view.x -= dx / view.k / squeeze; view.y += dy / view.k; panned(); draw(); }
function zoom(factor, x = width / 2, y = height / 2) {
  const k = Math.min(Math.max(view.k * factor, fitK * .4), fitK * 400), shrink = 1 / view.k - 1 / k;
  frame = null;
  view = { x: view.x + (x - width / 2) / squeeze * shrink, y: view.y - (y - height / 2) * shrink, k };
  draw();
}

// --- The base map: water guessed from where the names are, then the names themselves --------------------------------
const WET = /^(Bay|Lake|Reservoir|Stream|Channel|Canal|Gut|Sea|Swamp)$/, SALT = /^(Bay|Channel|Gut|Sea)$/;
const style = P.kinds.map(kind => kind === "Civil" ? "county" : kind === "Populated Place" ? "town" : WET.test(kind) ? "water" : "land");
const LABELS = {  // dense: how many at first; from: the zoom (squared) at which the kind appears
  county: { dense: 14, from: 0, font: "600 .69rem", ink: "county" }, town: { dense: 44, from: 0, font: "500 .75rem", ink: "label" },
  water: { dense: 9, from: 3, font: "italic .69rem", ink: "water" }, land: { dense: 7, from: 8, font: ".69rem", ink: "label" },
};
const SANS = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", seen = {};
const due = P.kind.map((k, i) => {  // the same density at every zoom; names in the first view do not wait for those around it
  const inside = P.lon[i] > extent[0] && P.lon[i] < extent[2] && P.lat[i] > extent[1] && P.lat[i] < extent[3], key = style[k] + inside;
  return (seen[key] = (seen[key] ?? -1) + 1) / LABELS[style[k]].dense;
});
const colour = {};
let sea = null;
function paintSea() {
  if (P.name.length < 500) return;  // too few names to tell land from water
  const b = P.lon.reduce((b, lon, i) => grow(b, lon, P.lat[i]), nowhere()), salt = P.kinds.map(kind => SALT.test(kind));
  const w = 400, h = Math.max(1, Math.round(w * (b[3] - b[1]) / (b[2] - b[0]) / squeeze)), field = new Float32Array(w * h), r = 13;
  P.lon.forEach((lon, i) => {
    const cx = Math.round((lon - b[0]) / (b[2] - b[0]) * (w - 1)), cy = Math.round((b[3] - P.lat[i]) / (b[3] - b[1]) * (h - 1));
    for (let y = Math.max(0, cy - r); y <= Math.min(h - 1, cy + r); y++)
      for (let x = Math.max(0, cx - r); x <= Math.min(w - 1, cx + r); x++)
        field[y * w + x] += (salt[P.kind[i]] ? -1.1 : 1) * Math.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 32);
  });
  const picture = el("canvas", { width: w, height: h }), pen = picture.getContext("2d");
  pen.fillStyle = colour.sea;
  pen.fillRect(0, 0, w, h);
  const image = pen.getImageData(0, 0, w, h), clamp = v => Math.min(1, Math.max(0, v));
  field.forEach((v, i) => {  // fade out towards the edge of what is known
    const edge = Math.min(i % w, w - 1 - i % w, Math.floor(i / w), h - 1 - Math.floor(i / w));
    image.data[4 * i + 3] = 255 * clamp((.46 - v) * 3) * clamp(edge / 40);
  });
  pen.putImageData(image, 0, 0);
  sea = { picture, b };
}
function ground() {
  ctx.fillStyle = colour.land;
  ctx.fillRect(0, 0, width, height);
  if (sea) ctx.drawImage(sea.picture, X(sea.b[0]), Y(sea.b[3]), X(sea.b[2]) - X(sea.b[0]), Y(sea.b[1]) - Y(sea.b[3]));
  const gap = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20].find(g => g >= 140 / view.k) ?? 45;
  const digits = Math.max(0, Math.ceil(-Math.log10(gap) - 1e-9)), w = width / view.k / squeeze / 2, h = height / view.k / 2;
  const degrees = (v, names) => Math.abs(v).toFixed(digits) + "° " + names[v < 0 ? 1 : 0];
  Object.assign(ctx, { strokeStyle: colour.grid, lineWidth: .6, fillStyle: colour.county, font: `.63rem ${SANS}`, textAlign: "left" });
  ctx.beginPath();
  for (let i = Math.ceil((view.x - w) / gap); i * gap < view.x + w; i++) {
    const x = X(i * gap);
    ctx.moveTo(x, 0); ctx.lineTo(x, height); ctx.fillText(degrees(i * gap, "EW"), x + 4, height - 5);
  }
  for (let i = Math.ceil((view.y - h) / gap); i * gap < view.y + h; i++) {
    const y = Y(i * gap);
    ctx.moveTo(0, y); ctx.lineTo(width, y);
    if (y > 130 && y < height - 70) ctx.fillText(degrees(i * gap, "NS"), 5, y - 4);
  }
  ctx.stroke();
}
function names(dim) {
  const used = [], zoomed = (view.k / fitK) ** 2;
  Object.assign(ctx, { lineJoin: "round", textAlign: "center", strokeStyle: colour.halo, lineWidth: 3 });
  for (let i = 0; i < P.name.length; i++) {
    const kind = style[P.kind[i]], label = LABELS[kind], county = kind === "county", x = X(P.lon[i]), y = Y(P.lat[i]);
    if (due[i] > zoomed || zoomed < label.from || county && zoomed > 60 || x < -40 || x > width + 40 || y < 0 || y > height) continue;
    ctx.font = `${label.font} ${SANS}`;
    ctx.letterSpacing = county ? "2px" : "0px";
    const text = county ? P.name[i].toUpperCase() : P.name[i], half = ctx.measureText(text).width / 2 + 4, top = county ? y - 9 : y - 17;
    if (used.some(u => u[0] < x + half && u[2] > x - half && u[1] < top + 17 && u[3] > top)) continue;
    used.push([x - half, top, x + half, top + 17]);
    ctx.fillStyle = colour[label.ink];
    ctx.globalAlpha = (dim ? .35 : 1) * (county ? .6 : .9);
    ctx.strokeText(text, x, top + 12);
    ctx.fillText(text, x, top + 12);
    if (!county) { ctx.beginPath(); ctx.arc(x, y, 1.6, 0, 7); ctx.fill(); }
  }
  ctx.globalAlpha = 1;
  ctx.letterSpacing = "0px";
}
const drawnBase = el("canvas", {});
let baseIs = "";
function baseMap() {  // ground and names: drawn anew only when the view or the colours have changed
  const key = [view.x, view.y, view.k, width, height, devicePixelRatio, colour.land, sea !== null].join();
  if (key !== baseIs) {
    ground(); names(false);
    Object.assign(drawnBase, { width: canvas.width, height: canvas.height });
    drawnBase.getContext("2d").drawImage(canvas, 0, 0);
    baseIs = key;
  } else ctx.drawImage(drawnBase, 0, 0, width, height);
}
function scaleBar() {
  const metres = 110 / view.k * DEGREE, unit = 10 ** Math.floor(Math.log10(metres)), nice = [5, 2, 1].find(n => n * unit <= metres) * unit;
  const x = 16, y = height - 27, right = x + nice / DEGREE * view.k;
  Object.assign(ctx, { strokeStyle: colour.ink, fillStyle: colour.ink, lineWidth: 1.5, font: `.69rem ${SANS}`, textAlign: "left" });
  ctx.stroke(new Path2D(`M${x} ${y - 5}V${y}H${right}V${y - 5}`));
  ctx.fillText(nice >= 1000 ? `${nice / 1000} km` : `${nice} m`, x, y - 10);
}

// --- Marks -----------------------------------------------------------------------------------------------------------
const hue = category => colour["c" + category % 8];
const GLYPHS = ["M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0", "M-.9-.9H.9V.9H-.9Z", "M0-1.2L1.15.9H-1.15Z", "M0-1.3L1.3 0L0 1.3L-1.3 0Z"];
const glyphs = GLYPHS.map(d => new Path2D(d));  // a shape beside the colour: categories differ for every eye
const glyph = (path, m, r) => { path.addPath(glyphs[M.category[m] % 4], new DOMMatrix([r, 0, 0, r, X(M.lon[m]), Y(M.lat[m])])); return path; };
const pen = (stroke, alpha, line) => Object.assign(ctx, { strokeStyle: stroke, fillStyle: stroke, globalAlpha: alpha, lineWidth: line });
function glyphStamp(category, r) {  // thousands of small pictures are drawn faster than one path of thousands of pieces
  const size = Math.ceil(r * 2.8 * devicePixelRatio), stamp = el("canvas", { width: size, height: size }), pen = stamp.getContext("2d");
  pen.translate(size / 2, size / 2);
  pen.scale(r * devicePixelRatio, r * devicePixelRatio);
  pen.fillStyle = hue(category);
  pen.fill(glyphs[category % 4]);
  return stamp;
}
function icon(category) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), shape = document.createElementNS(svg.namespaceURI, "path");
  for (const [name, value] of [["viewBox", "-1.35 -1.35 2.7 2.7"], ["class", "glyph"], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
  shape.setAttribute("d", GLYPHS[category % 4]);
  shape.setAttribute("fill", `var(--c${category % 8})`);
  svg.append(shape);
  return svg;
}
function marked(text, wanted) {  // the words that were asked for stand out
  const node = el("span", {}), set = new Set(wanted);
  let at = 0;
  for (const hit of text.matchAll(/[\p{L}\p{N}]+/gu)) if (set.has(hit[0].toLowerCase())) {
    node.append(text.slice(at, hit.index), el("mark", { textContent: hit[0] }));
    at = hit.index + hit[0].length;
  }
  node.append(text.slice(at));
  return node;
}
const category = m => el("span", {}, icon(M.category[m]), M.categories[M.category[m]]);
const length = metres => metres < 1000 ? `${Math.round(metres)} m` : `${(metres / 1000).toFixed(1)} km`;

// --- Hands -----------------------------------------------------------------------------------------------------------
function showTip(text, x, y) {
  const tip = $("tip");
  tip.textContent = text;
  tip.hidden = !text;
  canvas.style.cursor = text ? "pointer" : "";
  tip.style.left = Math.max(0, Math.min(x + 14, width - 300)) + "px";
  tip.style.top = Math.min(y + 14, height - 80) + "px";
}
const off = new Set();  // the categories that are switched off
function addChips(changed) {
  if (M.categories.length > 1) M.categories.forEach((name, c) => {
    const chip = el("button", { className: "chip" }, icon(c), name || "no category");
    chip.setAttribute("aria-pressed", true);
    chip.onclick = () => { off.delete(c) || off.add(c); chip.setAttribute("aria-pressed", !off.has(c)); changed(); };
    $("chips").append(chip);
  });
}
const pointers = new Map();
let moved = 0;
canvas.onpointerdown = e => { canvas.setPointerCapture(e.pointerId); pointers.set(e.pointerId, e); moved = 0; };
canvas.onpointermove = e => {
  const was = pointers.get(e.pointerId);
  if (!was) return tell(e.offsetX, e.offsetY);
  if (pointers.size === 2) {
    const other = [...pointers.values()].find(p => p.pointerId !== e.pointerId), far = p => Math.hypot(p.offsetX - other.offsetX, p.offsetY - other.offsetY);
    zoom(far(e) / Math.max(1, far(was)), other.offsetX, other.offsetY);
  } else pan(e.offsetX - was.offsetX, e.offsetY - was.offsetY);
  moved += Math.abs(e.offsetX - was.offsetX) + Math.abs(e.offsetY - was.offsetY);
  pointers.set(e.pointerId, e);
};
canvas.onpointerup = e => { if (pointers.delete(e.pointerId) && moved < 5) select(hit(e.offsetX, e.offsetY)); };
canvas.onpointercancel = e => pointers.delete(e.pointerId);
canvas.onpointerleave = () => { showTip(""); leave(); };
canvas.addEventListener("wheel", e => {
  e.preventDefault();
  zoom(Math.exp(-Math.max(-60, Math.min(60, e.deltaY)) / 160), e.offsetX, e.offsetY);
}, { passive: false });
const KEYS = {
  ArrowLeft: () => pan(80, 0), ArrowRight: () => pan(-80, 0), ArrowUp: () => pan(0, 80), ArrowDown: () => pan(0, -80),
  "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: () => fit(extent),
};
canvas.onkeydown = e => { if (KEYS[e.key] && !e.ctrlKey && !e.metaKey) { e.preventDefault(); KEYS[e.key](); } };
$("in").onclick = () => zoom(1.6);
$("out").onclick = () => zoom(1 / 1.6);
$("fit").onclick = () => fit(extent);

// --- Size, colours, frames --------------------------------------------------------------------------------------------
let waiting = 0;
function draw() { waiting ||= requestAnimationFrame(() => { waiting = 0; paint(); }); }
function theme() {
  const css = getComputedStyle(document.documentElement), names = ["ink", "accent", "sea", "land", "grid", "label", "county", "water", "region", "halo"];
  for (const name of [...names, ..."01234567"].map(n => n.length > 1 ? n : "c" + n)) colour[name] = css.getPropertyValue("--" + name).trim();
  paintSea(); draw(); bars();
}
function resize() {
  width = canvas.clientWidth;
  height = canvas.clientHeight;
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  fitK = scaleFor(extent);
  if (frame) fit(...frame);
  paint(); bars();  // at once: a new size has cleared the canvas
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
