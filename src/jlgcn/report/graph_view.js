"use strict";
// Draws the graph of a model page: drag to move, wheel or pinch to zoom, click a row for its edges.
// All text of the user's own is set as text, never as markup.
(function () {
  const box = document.getElementById("graph");
  const data = JSON.parse(document.getElementById("graph-data").textContent);
  const row = data.row, edge = data.edge, count = row.id.length;
  const canvas = box.querySelector("canvas"), pen = canvas.getContext("2d");
  const tip = box.querySelector(".tip"), panel = box.querySelector(".panel");
  const showLearned = box.querySelector(".learned"), showGiven = box.querySelector(".given");
  const find = box.querySelector(".find"), missing = box.querySelector(".missing");
  const edgesOf = row.id.map(() => []);
  edge.first.forEach((i, e) => { edgesOf[i].push(e); edgesOf[edge.second[e]].push(e); });

  const hasGiven = edge.given.some((weight) => weight > 0);
  showGiven.parentElement.hidden = !hasGiven;

  let zoom = 1, shiftX = 0, shiftY = 0;  // of the picture, in pixels
  let hovered = -1, chosen = -1, chosenEdge = -1;

  const isShown = (e) =>
    (showLearned.checked && edge.learned[e] > 0) || (showGiven.checked && edge.given[e] > 0);
  const otherEnd = (e, i) => (edge.first[e] === i ? edge.second[e] : edge.first[e]);
  const unit = () => 0.46 * Math.min(canvas.clientWidth, canvas.clientHeight);
  const stretch = () => Math.max(1, 0.96 * canvas.clientWidth / canvas.clientHeight);
  const placeX = (i) => canvas.clientWidth / 2 + shiftX + zoom * unit() * stretch() * row.x[i];
  const placeY = (i) => canvas.clientHeight / 2 + shiftY - zoom * unit() * row.y[i];
  const size = () => Math.max(2.2, Math.min(7, (count < 400 ? 4.5 : 3) * Math.sqrt(zoom)));

  function lines(edges, color, alpha, width) {
    pen.strokeStyle = color;
    pen.globalAlpha = alpha;
    pen.lineWidth = width;
    pen.beginPath();
    edges.forEach((e) => {
      pen.moveTo(placeX(edge.first[e]), placeY(edge.first[e]));
      pen.lineTo(placeX(edge.second[e]), placeY(edge.second[e]));
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }

  function dot(i, radius, ring) {
    pen.beginPath();
    pen.arc(placeX(i), placeY(i), radius, 0, 7);
    pen.fillStyle = data.colors[row.class[i]];
    pen.fill();
    if (ring) {
      pen.strokeStyle = ring;
      pen.lineWidth = 1.6;
      pen.stroke();
    }
  }

  function draw() {
    const style = getComputedStyle(box), ink = style.getPropertyValue("--ink");
    const learned = style.getPropertyValue("--soft"), given = style.getPropertyValue("--given");
    const scale = window.devicePixelRatio || 1, radius = size();
    canvas.width = canvas.clientWidth * scale;
    canvas.height = canvas.clientHeight * scale;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const near = chosen < 0 ? [] : edgesOf[chosen].filter(isShown);
    const dim = chosen < 0 ? 1 : 0.35;
    const all = [...edge.drawn.keys()].filter((e) => edge.drawn[e] && isShown(e));
    lines(all.filter((e) => !(edge.given[e] > 0 && showGiven.checked)), learned, 0.3 * dim, 0.8);
    lines(all.filter((e) => edge.given[e] > 0 && showGiven.checked), given, 0.55 * dim, 1);
    pen.globalAlpha = dim;
    for (let i = 0; i < count; i += 1) {
      if (row.label[i] < 0) { dot(i, radius, null); }
    }
    for (let i = 0; i < count; i += 1) {
      if (row.label[i] >= 0) { dot(i, radius + 0.8, ink); }
    }
    pen.globalAlpha = 1;
    if (chosen >= 0) {
      lines(near.filter((e) => edge.given[e] === 0), ink, 0.7, 1.3);
      lines(near.filter((e) => edge.given[e] > 0), given, 0.9, 1.8);
      if (chosenEdge >= 0) { lines([chosenEdge], ink, 1, 3.5); }
      near.forEach((e) => dot(otherEnd(e, chosen), radius + 1, ink));
      dot(chosen, radius + 4, ink);
    }
    if (hovered >= 0 && hovered !== chosen) { dot(hovered, radius + 2.5, ink); }
  }

  function nearest(x, y, reach) {
    let best = -1, least = reach * reach;
    for (let i = 0; i < count; i += 1) {
      const d = (placeX(i) - x) ** 2 + (placeY(i) - y) ** 2;
      if (d < least) { least = d; best = i; }
    }
    return best;
  }

  function add(parent, tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) { made.textContent = text; }
    if (className) { made.className = className; }
    parent.appendChild(made);
    return made;
  }

  function about(i) {
    const label = row.label[i];
    return data.classes[row.class[i]] + ", probability " + row.probability[i].toFixed(2) +
      (label < 0 ? "; no label" : "; labelled " + data.classes[label]);
  }

  function hover(i, x, y) {
    hovered = i;
    tip.hidden = i < 0;
    if (i >= 0) {
      tip.textContent = "";
      add(tip, "b", row.id[i]);
      add(tip, "div", about(i));
      const room = canvas.clientWidth - tip.offsetWidth - 4;
      tip.style.left = Math.max(0, Math.min(room, x + 14)) + "px";
      tip.style.top = y + 14 + "px";
    }
    draw();
  }

  function explain(e, holder) {
    chosenEdge = e;
    panel.querySelectorAll("button.edge").forEach((button) => {
      button.setAttribute("aria-expanded", String(button === holder.firstChild));
    });
    panel.querySelectorAll(".why").forEach((old) => old.remove());
    const why = add(holder, "div", undefined, "why"), distance = edge.distance[e];
    add(why, "p", "Weight " + Math.exp(-distance).toPrecision(3) + " by squared distance " +
      distance.toPrecision(3) + ", of which:");
    const top = edge.top[e], most = Math.max(...top.map((pair) => Math.abs(pair[1])));
    let rest = distance;
    top.forEach(([feature, value]) => {
      rest -= value;
      const line = add(why, "div", undefined, "bar");
      add(line, "span", data.features[feature], "name").title = data.features[feature];
      const fill = add(add(line, "span", undefined, "track"), "span", undefined, "fill");
      fill.style.width = 100 * Math.abs(value) / most + "%";
      fill.classList.toggle("minus", value < 0);
      add(line, "span", (value < 0 ? "−" : "+") + Math.abs(value).toPrecision(2), "value");
    });
    if (!top.length) { add(why, "p", "none: their features are equal.", "soft"); }
    if (Math.abs(rest) > 0.01 * distance) {
      add(why, "p", "all other features: " + rest.toPrecision(2), "soft");
    }
    const go = add(why, "button", "go to this row");
    go.addEventListener("click", () => choose(otherEnd(e, chosen)));
    draw();
  }

  function list(title, kind, total, note) {
    const found = edgesOf[chosen].filter((e) => edge[kind][e] > 0)
      .sort((a, b) => edge[kind][b] - edge[kind][a]);
    add(panel, "h4", title + " (" + total + ")");
    if (!total) { add(panel, "p", "none", "soft"); return; }
    const items = add(panel, "ul");
    found.forEach((e) => {
      const other = otherEnd(e, chosen), item = add(items, "li");
      const button = add(item, "button", undefined, "edge");
      const mark = add(button, "span", undefined, "mark");
      mark.style.background = data.colors[row.class[other]];
      add(button, "span", row.id[other], "name");
      add(button, "span", edge[kind][e].toPrecision(2), "value").title = note;
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => explain(e, item));
    });
    if (total > found.length) {
      add(panel, "p", total - found.length + " more, lighter or not drawn", "soft");
    }
  }

  function choose(i) {
    missing.hidden = true;
    chosen = i;
    chosenEdge = -1;
    panel.textContent = "";
    if (i < 0) {
      add(panel, "p", "Click a row for its neighbours, then a neighbour for the contribution of each " +
        "feature to their distance.", "soft");
    } else {
      add(panel, "h3", row.id[i]);
      add(panel, "p", about(i));
      list("Learned neighbours", "learned", row.learned[i], "kernel weight");
      if (hasGiven) {
        list("Given neighbours", "given", row.given[i], "weight after given_decay");
      }
    }
    draw();
  }

  function zoomBy(factor, x, y) {
    const next = Math.max(0.5, Math.min(40, zoom * factor)), ratio = next / zoom;
    const cx = x - canvas.clientWidth / 2, cy = y - canvas.clientHeight / 2;
    shiftX = cx - ratio * (cx - shiftX);
    shiftY = cy - ratio * (cy - shiftY);
    zoom = next;
    draw();
  }

  const fingers = new Map();
  let travelled = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (fingers.size === 1) { travelled = 0; }
  });
  canvas.addEventListener("pointermove", (event) => {
    const x = event.offsetX, y = event.offsetY, last = fingers.get(event.pointerId);
    if (!last) { hover(nearest(x, y, 12), x, y); return; }
    travelled += Math.abs(x - last[0]) + Math.abs(y - last[1]);
    if (fingers.size === 1) {
      shiftX += x - last[0];
      shiftY += y - last[1];
    } else {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      const before = Math.hypot(last[0] - other[0], last[1] - other[1]);
      zoomBy(Math.hypot(x - other[0], y - other[1]) / Math.max(before, 1),
        (x + other[0]) / 2, (y + other[1]) / 2);
    }
    fingers.set(event.pointerId, [x, y]);
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const wasAlone = fingers.size === 1;
    fingers.delete(event.pointerId);
    if (wasAlone && travelled < 6) {
      choose(nearest(event.offsetX, event.offsetY, event.pointerType === "touch" ? 24 : 12));
    }
  });
  canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => hover(-1, 0, 0));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }, { passive: false });

  const middle = (factor) => zoomBy(factor, canvas.clientWidth / 2, canvas.clientHeight / 2);
  box.querySelector(".in").addEventListener("click", () => middle(1.5));
  box.querySelector(".out").addEventListener("click", () => middle(1 / 1.5));
  box.querySelector(".whole").addEventListener("click", () => {
    zoom = 1;
    shiftX = shiftY = 0;
    draw();
  });
  find.addEventListener("change", () => {
    const i = row.id.indexOf(find.value.trim());
    choose(i);
    missing.hidden = i >= 0 || !find.value.trim();
  });
  showLearned.addEventListener("change", draw);
  showGiven.addEventListener("change", draw);
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  // "#row=ID" opens the page with that row chosen.
  const wanted = /^#row=(.*)$/.exec(window.location.hash);
  let first = -1;
  if (wanted) {
    try { first = row.id.indexOf(decodeURIComponent(wanted[1])); } catch (error) { first = -1; }
  }
  choose(first);
})();
