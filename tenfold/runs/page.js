"use strict";
(() => {
  // Charts of a page: each figure.chart holds its numbers as JSON and is drawn as SVG.
  const SMALL = 190, LARGE = 340, MOVED = 5, TALL = 24, LISTED = 24, STORE = "tenfold:" + location.pathname;
  const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
  const state = { smooth: 0, hidden: {}, charts: {} };
  try { Object.assign(state, JSON.parse(sessionStorage.getItem(STORE)) || {}); } catch { /* begins anew */ }
  const keep = () => { try { sessionStorage.setItem(STORE, JSON.stringify(state)); } catch { /* nowhere to */ } };
  const plots = [];
  const redraw = () => { keep(); plots.forEach((plot) => plot.draw()); };

  const add = (parent, name, attributes = {}, text = "") => {
    const drawn = parent.namespaceURI.endsWith("svg");
    const made = drawn ? document.createElementNS(parent.namespaceURI, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  };
  const paint = (line) => (typeof line.colour === "number" ? `var(--c${line.colour % 10})` : line.colour);
  const short = (value, digits) => {
    const size = Math.abs(value);
    for (const [scale, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= scale && size < 1e12) return +(value / scale).toPrecision(digits) + letter;
    const small = size && (size < 1e-3 || size >= 1e12);
    return small ? value.toExponential(digits - 1).replace(/\.?0*e/, "e") : String(+value.toPrecision(digits));
  };
  // with as many digits as tell them apart
  const spelt = (values) => {
    for (let digits = 3; ; digits++) {
      const words = values.map((value) => short(value, digits));
      if (digits > 9 || new Set(words).size === words.length) return words;
    }
  };
  const ticks = (low, high, count, log) => {
    const found = [];
    if (log) {
      const few = Math.log10(high / low) < 2;
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
        for (const times of few ? [1, 2, 5] : [1]) found.push(times * 10 ** power);
      const fit = found.filter((value) => value >= low && value <= high);
      return fit.filter((_, i) => i % Math.ceil(fit.length / count) === 0);
    }
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((times) => times * power >= raw) * power;
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    return found;
  };
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] < x) low = middle; else high = middle; }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  };
  const smoothed = (values, weight) => {
    if (!weight || !values) return values;
    let sum = 0, mass = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      mass = weight * mass + (1 - weight);
      return sum / mass;
    });
  };

  class Plot {
    constructor(figure, number) {
      this.figure = figure;
      this.data = JSON.parse(figure.querySelector("script").textContent);
      this.key = `${number} ${this.data.title}`;
      this.own = state.charts[this.key] ??= { log: this.data.log, logx: false, zoom: null };
      const head = add(figure, "figcaption");
      add(head, "span", { class: "title" }, this.data.title);
      const tools = add(head, "span", { class: "tools" });
      if (!this.data.ticks.length) {
        this.button(tools, "log y", "log", "a logarithmic scale upwards");
        this.button(tools, "log x", "logx", "a logarithmic scale along");
      }
      this.whole = add(tools, "button", { type: "button", title: "show everything again (or click twice)" }, "whole");
      this.whole.onclick = () => this.zoom(null);
      this.place = add(figure, "div", { class: "place" });
      this.place.innerHTML = "<svg></svg>";
      this.svg = this.place.firstChild;
      this.svg.setAttribute("role", "img");
      if (this.data.notes.length) this.svg.classList.add("alone");
      this.svg.setAttribute("aria-label", `${this.data.title}: ${this.data.y} over ${this.data.x}`);
      this.tip = add(this.place, "div", { class: "tip" });
      this.tip.hidden = true;
      this.listen();
      this.legend();
      new ResizeObserver(() => this.draw()).observe(this.place);
    }
    button(parent, words, name, title) {
      const made = add(parent, "button", { type: "button", title, "aria-pressed": this.own[name] }, words);
      made.onclick = () => {
        this.own[name] = !this.own[name];
        made.setAttribute("aria-pressed", this.own[name]);
        this.zoom(null);
      };
    }
    zoom(range) { this.own.zoom = range; this.tip.hidden = true; keep(); this.draw(); }
    name(line) { return `${this.key} ${line.run} ${line.name}`; }
    shown(line) {
      if (line.style === "thin" && state.hidden["each"]) return false;
      return !state.hidden[`run ${line.run}`] && !state.hidden[this.name(line)];
    }
    legend() {
      const names = add(this.figure, "div", { class: "legend" });
      const thin = this.data.lines.filter((line) => line.style === "thin");
      const rest = this.data.lines.filter((line) => line.style !== "thin");
      if (this.data.lines.length === 1 && rest.length && !rest[0].run && rest[0].name === this.data.title) return;
      const list = (parent, lines) => lines.forEach((line) => toggle(parent, line.name, paint(line), this.name(line), line.style));
      list(names, rest);
      if (thin.length) {
        const fold = add(this.figure, "details", { class: "legend" });
        add(fold, "summary", {}, `${thin.length} single curves`);
        if (thin.length <= LISTED || this.data.fold) list(fold, thin);
        else fold.ontoggle = () => { fold.ontoggle = null; list(fold, thin); };
      }
    }
    listen() {
      const at = (event) => {
        const box = this.svg.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      this.svg.onpointerdown = (event) => { if (event.button === 0) this.from = at(event); };
      this.svg.onpointermove = (event) => {
        const here = at(event);
        if (this.from && Math.abs(here[0] - this.from[0]) > MOVED) {
          if (!this.svg.hasPointerCapture(event.pointerId)) this.svg.setPointerCapture(event.pointerId);
          this.mark(this.from, here);
        } else this.hover(here);
      };
      this.svg.onpointerup = (event) => {
        const [from, here] = [this.from, at(event)];
        this.from = null;
        if (from && Math.abs(here[0] - from[0]) > MOVED) this.select(from, here);
        else this.hover(here);
      };
      this.svg.onpointercancel = () => { this.from = null; this.draw(); };
      this.svg.onpointerleave = () => { if (!this.from) { this.tip.hidden = true; this.over?.replaceChildren(); } };
      this.svg.ondblclick = () => this.zoom(null);
    }
    select(from, here) {
      const span = (k) => [from[k], here[k]].sort((a, b) => a - b);
      const x = span(0).map((value) => this.back(value, 0));
      const tall = Math.abs(here[1] - from[1]) > TALL;
      this.zoom({ x, y: tall ? span(1).map((value) => this.back(value, 1)).reverse() : null });
    }
    mark(from, here) {
      const tall = Math.abs(here[1] - from[1]) > TALL, { left, right, top, bottom } = this.box;
      const clip = (value, low, high) => Math.min(Math.max(value, low), high);
      const x = [from[0], here[0]].map((value) => clip(value, left, right)).sort((a, b) => a - b);
      const y = tall ? [from[1], here[1]].map((value) => clip(value, top, bottom)).sort((a, b) => a - b) : [top, bottom];
      this.over.replaceChildren();
      add(this.over, "rect", { class: "mark", x: x[0], y: y[0], width: x[1] - x[0], height: y[1] - y[0] });
    }
    // of a number its place in pixels, and back; k is 0 for x and 1 for y
    scale(k) {
      const [low, high] = this.range[k], { left, right, top, bottom } = this.box;
      const [from, to] = k ? [bottom, top] : [left, right];
      const put = this.logs[k] ? Math.log : (value) => value;
      const start = put(low), slope = (to - from) / (put(high) - start || 1);
      return (value) => from + (put(value) - start) * slope;
    }
    back(pixel, k) {
      const [low, high] = this.range[k], { left, right, top, bottom } = this.box;
      const share = k ? (bottom - pixel) / (bottom - top) : (pixel - left) / (right - left);
      const part = Math.min(Math.max(share, 0), 1);
      return this.logs[k] ? low * (high / low) ** part : low + (high - low) * part;
    }
    extent(lines, k, window) {
      let low = Infinity, high = -Infinity;
      const log = this.logs[k];
      for (const line of lines) {
        const xs = line.xs;
        const values = k ? [line.ys, ...(line.lows ? [line.lows, line.highs] : [])] : [xs];
        for (const own of values)
          for (let i = 0; i < own.length; i++) {
            const value = own[i];
            if (value === null || (log && value <= 0)) continue;
            if (window && (xs[i] < window[0] || xs[i] > window[1])) continue;
            if (value < low) low = value;
            if (value > high) high = value;
          }
      }
      if (low > high) return log ? [0.1, 1] : [0, 1];
      // as good as equal: between them there are hardly any numbers
      if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
      if (!k) return [low, high];
      const room = log ? (high / low) ** 0.04 : (high - low) * 0.04;
      return log ? [low / room, high * room] : [low - room, high + room];
    }
    draw() {
      const width = this.place.clientWidth || 640, height = this.data.small ? SMALL : LARGE;
      this.logs = [this.own.logx, this.own.log];
      this.lines = this.data.lines.filter((line) => this.shown(line)).map((line) => ({
        ...line,
        xs: this.data.xs[line.x],
        ys: smoothed(line.y, state.smooth),
        lows: smoothed(line.low, state.smooth),
        highs: smoothed(line.high, state.smooth),
      }));
      const zoom = this.own.zoom;
      const x = zoom ? zoom.x : this.data.ticks.length ? [-0.05, this.data.ticks.length - 0.45] : this.extent(this.lines, 0);
      this.range = [x, zoom?.y || this.data.bounds || this.extent(this.lines, 1, zoom ? x : null)];
      const marks = this.data.notes.length ? [] : ticks(...this.range[1], this.data.small ? 5 : 8, this.logs[1]);
      const labels = spelt(marks);
      const left = 14 + 7 * Math.max(2, ...labels.map((words) => words.length)) + (this.data.y ? 16 : 0);
      this.box = { left, right: width - 14, top: 10, bottom: height - (this.data.x ? 40 : 24) };
      this.whole.hidden = !zoom;
      this.figure.dataset.lines = this.lines.length;
      this.paintAll(width, height, marks, labels);
    }
    paintAll(width, height, marks, labels) {
      const { svg, box } = this, [px, py] = [this.scale(0), this.scale(1)];
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const id = `clip${plots.indexOf(this)}`;
      const size = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
      add(add(add(svg, "defs"), "clipPath", { id }), "rect", size);
      const axes = add(svg, "g", { class: "axes" });
      marks.forEach((value, i) => {
        add(axes, "line", { x1: box.left, x2: box.right, y1: py(value), y2: py(value) });
        add(axes, "text", { x: box.left - 6, y: py(value) + 4, "text-anchor": "end" }, labels[i]);
      });
      const named = this.data.ticks.length;
      const places = named ? [...Array(named).keys()] : ticks(...this.range[0], Math.max(3, (box.right - box.left) / 90), this.logs[0]);
      const below = named ? this.data.ticks : spelt(places);
      const every = Math.ceil(named / 12) || 1;  // names beyond a dozen would lie upon each other
      for (const [i, value] of places.entries()) {
        if (i % every) continue;
        const words = below[i];
        add(axes, "line", { x1: px(value), x2: px(value), y1: box.top, y2: box.bottom });
        add(axes, "text", { x: px(value), y: box.bottom + 16, "text-anchor": this.data.ticks.length && !value ? "start" : "middle" }, words);
      }
      const middle = (box.top + box.bottom) / 2;
      add(axes, "text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, this.data.x);
      add(axes, "text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, this.data.y);
      const inside = add(svg, "g", { "clip-path": `url(#${id})` });
      for (const line of this.lines) if (line.lows) this.band(inside, line, px, py);
      for (const line of this.lines) this.curve(inside, line, px, py);
      for (const [x, y, words] of this.data.notes) add(axes, "text", { x: px(x) + 4, y: py(y) + 3, class: "note" }, words);
      this.over = add(svg, "g");
    }
    fits(x, y) { return y !== null && !(this.logs[1] && y <= 0) && !(this.logs[0] && x <= 0); }
    band(parent, line, px, py) {
      const [up, down] = [[], []], floor = this.logs[1] ? this.range[1][0] : null;
      line.xs.forEach((x, i) => {
        if (line.lows[i] === null || (this.logs[0] && x <= 0) || (floor && line.highs[i] <= 0)) return;
        const low = floor ? Math.max(line.lows[i], floor) : line.lows[i];
        up.push(`${px(x).toFixed(1)} ${py(line.highs[i]).toFixed(1)}`);
        down.push(`${px(x).toFixed(1)} ${py(low).toFixed(1)}`);
      });
      if (up.length === 1) add(parent, "path", { d: `M${up[0]}L${down[0]}`, class: "whisker", style: `stroke:${paint(line)}` });
      else if (up.length) add(parent, "path", { d: `M${up.join("L")}L${down.reverse().join("L")}Z`, class: "band", style: `fill:${paint(line)}` });
    }
    curve(parent, line, px, py) {
      let path = "", pen = false, last = "";
      const dots = [];
      line.xs.forEach((x, i) => {
        const y = line.ys[i];
        if (!this.fits(x, y)) { pen = false; return; }
        const [a, b] = [px(x).toFixed(1), py(y).toFixed(1)];
        path += !pen ? `M${a} ${b}` : line.style === "steps" ? `V${b}H${a}` : `L${a} ${b}`;
        pen = true;
        dots.push([a, b]);
        last = `M${a} ${b}h.01`;
      });
      const [style, name] = [`stroke:${paint(line)}`, line.name];
      add(parent, "path", { d: dots.length === 1 ? last : path, class: `curve ${line.style}`, style, "data-name": name });
      if (line.style === "dots" || dots.length === 1)
        for (const [cx, cy] of dots) add(parent, "circle", { cx, cy, r: 2.6, style: `fill:${paint(line)}` });
    }
    hover([pixel, height]) {
      const { left, right, top, bottom } = this.box;
      this.over.replaceChildren();
      if (pixel < left || pixel > right || height < top || height > bottom) { this.tip.hidden = true; return; }
      const x = this.back(pixel, 0), [px, py] = [this.scale(0), this.scale(1)];
      const found = this.lines.map((line) => { const i = nearest(line.xs, x); return { line, i, x: line.xs[i], y: line.ys[i] }; })
        .filter((one) => one.x !== undefined && this.fits(one.x, one.y));
      const apart = (one) => Math.abs(py(one.y) - height);
      const thin = found.filter((one) => one.line.style === "thin").sort((a, b) => apart(a) - apart(b)).slice(0, 1);
      const rows = [...found.filter((one) => one.line.style !== "thin"), ...thin];
      if (!rows.length) { this.tip.hidden = true; return; }
      const close = rows.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a)).x;
      add(this.over, "line", { class: "cross", x1: px(close), x2: px(close), y1: top, y2: bottom });
      if (thin.length) this.curveOver(thin[0].line, px, py);
      this.tip.replaceChildren();
      const where = this.data.ticks.length ? this.data.ticks[Math.round(close)] : NUMBER.format(close);
      add(this.tip, "b", {}, this.data.ticks.length ? where : `${this.data.x} ${where}`);
      for (const { line, i, x: own, y } of rows) {
        add(this.over, "circle", { cx: px(own), cy: py(y), r: 3.5, style: `fill:${paint(line)}` });
        const row = add(this.tip, "div");
        add(row, "i", { style: `background:${paint(line)}` });
        const band = line.lows && line.lows[i] !== line.highs[i] ? ` (${NUMBER.format(line.lows[i])} to ${NUMBER.format(line.highs[i])})` : "";
        const apart = own === close || this.data.ticks.length ? "" : ` at ${NUMBER.format(own)}:`;
        add(row, "span", {}, `${line.name}${apart} ${this.data.notes.length ? "" : NUMBER.format(y)}${band}`);
      }
      this.tip.hidden = false;
      const room = this.place.clientWidth - this.tip.offsetWidth - 4;
      const beside = pixel > (left + right) / 2 ? pixel - this.tip.offsetWidth - 14 : pixel + 14;
      this.tip.style.left = `${Math.max(Math.min(beside, room), 4)}px`;
      this.tip.style.top = `${Math.max(height - this.tip.offsetHeight - 8, 4)}px`;
    }
    curveOver(line, px, py) {
      const group = add(this.over, "g", { "clip-path": `url(#clip${plots.indexOf(this)})` });
      this.curve(group, { ...line, style: "over" }, px, py);
    }
  }

  function toggle(parent, words, colour, key, style = "") {
    const made = add(parent, "button", { type: "button", class: `toggle ${style && "of-" + style}`, "aria-pressed": !state.hidden[key] });
    if (colour) add(made, "i", { style: `background:${colour}` });
    add(made, "span", {}, words);
    made.onclick = () => {
      if (state.hidden[key]) delete state.hidden[key]; else state.hidden[key] = true;
      made.setAttribute("aria-pressed", !state.hidden[key]);
      redraw();
    };
  }
  function controls() {
    const lines = plots.flatMap((plot) => plot.data.lines), bar = document.getElementById("controls");
    if (!bar || !lines.length) return;
    const label = add(bar, "label", {}, "smooth ");
    const slider = add(label, "input", { type: "range", min: 0, max: 0.98, step: 0.02, value: state.smooth });
    slider.oninput = () => { state.smooth = +slider.value; redraw(); };
    const runs = new Map(lines.filter((line) => line.run).map((line) => [line.run, line]));
    if (runs.size > 1) runs.forEach((line, run) => toggle(bar, run, paint(line), `run ${run}`));
    if (lines.some((line) => line.style === "thin")) toggle(bar, "each run", "", "each");
  }
  document.querySelectorAll("figure.chart").forEach((figure, number) => plots.push(new Plot(figure, number)));
  controls();
  // a page that is written anew while runs go on: not while it is being pointed at
  const seconds = +document.body.dataset.live;
  const look = () => (plots.some((plot) => plot.from || !plot.tip.hidden) ? setTimeout(look, 1000) : location.reload());
  if (seconds) setTimeout(look, seconds * 1000);
})();
