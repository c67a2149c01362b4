"use strict";
// Clouds to turn with the mouse; once for a page, whatever the number of viewers on it.
document.querySelectorAll(".viewer").forEach(function (box) {
  var clouds = JSON.parse(box.querySelector("script").textContent);
  var canvas = box.querySelector("canvas"), pen = canvas.getContext("2d");
  var which = box.querySelector(".cloud"), layer = box.querySelector(".layer");
  clouds.forEach(function (c, i) { which.add(new Option(c.title, i)); });
  layer.add(new Option("nearest neighbours", -1));
  clouds[0].layers.forEach(function (_, i) { layer.add(new Option("layer " + (i + 1), i)); });
  layer.value = 0;
  var turn = 0.6, tilt = 0.3, from = null;
  function color(share) {  // from dark blue over green to yellow
    var stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
    var at = Math.min(3.999, Math.max(0, share * 4)), i = Math.floor(at), t = at - i;
    return "rgb(" + stops[i].map(function (v, k) {
      return Math.round(v + t * (stops[i + 1][k] - v)); }).join(",") + ")";
  }
  function draw() {
    var c = clouds[which.value], w = canvas.width, h = canvas.height, size = 0.42 * h;
    var weights = layer.value < 0
      ? c.points.map(function (_, i) { return c.neighbors.indexOf(i) < 0 ? 0 : 1; })
      : c.layers[layer.value];
    var top = Math.max.apply(null, weights);
    var ct = Math.cos(turn), st = Math.sin(turn), ci = Math.cos(tilt), si = Math.sin(tilt);
    var spots = c.points.map(function (p, i) {
      var x = ct * p[0] + st * p[2], z = -st * p[0] + ct * p[2];
      return { i: i, x: x, y: ci * p[1] - si * z, z: si * p[1] + ci * z };
    }).sort(function (a, b) { return a.z - b.z; });
    pen.clearRect(0, 0, w, h);
    spots.forEach(function (s) {
      var share = 1 + Math.log10(Math.max(weights[s.i] / top, 1e-4)) / 4;
      pen.fillStyle = s.i === c.point ? "#d00000" : color(share);
      pen.beginPath();
      pen.arc(w / 2 + size * s.x, h / 2 - size * s.y,
        (s.i === c.point ? 11 : 5) + 1.5 * s.z, 0, 7);
      pen.fill();
    });
  }
  function place(e) { return e.touches ? e.touches[0] : e; }
  function start(e) { from = [place(e).clientX, place(e).clientY]; e.preventDefault(); }
  function move(e) {
    if (!from) { return; }
    turn += (place(e).clientX - from[0]) / 120;
    tilt = Math.max(-1.5, Math.min(1.5, tilt + (place(e).clientY - from[1]) / 120));
    from = [place(e).clientX, place(e).clientY];
    draw();
  }
  canvas.addEventListener("mousedown", start);
  canvas.addEventListener("touchstart", start);
  window.addEventListener("mousemove", move);
  canvas.addEventListener("touchmove", function (e) { move(e); e.preventDefault(); });
  ["mouseup", "touchend"].forEach(function (n) {
    window.addEventListener(n, function () { from = null; }); });
  which.onchange = layer.onchange = draw;
  draw();
});
