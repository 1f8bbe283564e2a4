'use strict';
// Shows values under the mouse and zooms. Draws as charts.c does; the numbers below are its own.
(function () {
  const WIDTH = 720, HEIGHT = 240, LEFT = 64, RIGHT = 12, TOP = 8, BOTTOM = 24, COLORS = 8;
  const data = JSON.parse(document.getElementById('data').textContent);
  const charts = data.charts.map(c => Object.assign(c, { figure: document.getElementById(c.id) }));
  let zoom = [0, data.last];

  function element(parent, name, attributes) {
    const e = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', name));
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    return e;
  }

  function nice(lo, hi, n) {
    const raw = (hi - lo) / n, power = 10 ** Math.floor(Math.log10(raw)), factor = raw / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
  }

  const hiOf = s => s.hi || s.lo;
  const short = v => String(Number(v.toPrecision(6)));

  // The first point at or behind a step.
  function search(steps, step) {
    let lo = 0, hi = steps.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (steps[mid] < step) lo = mid + 1; else hi = mid;
    }
    return lo;
  }

  function rangeOf(chart) {
    let lo = Infinity, hi = -Infinity;
    for (const s of chart.series)
      for (let i = search(s.step, zoom[0]); i < s.step.length && s.step[i] <= zoom[1]; i++)
        if (s.lo[i] !== null) {
          lo = Math.min(lo, s.lo[i]);
          hi = Math.max(hi, hiOf(s)[i]);
        }
    if (lo > hi) return null;
    const room = hi > lo ? 0.03 * (hi - lo) : Math.max(Math.abs(hi) * 0.1, 1e-9);
    return [lo - room, hi + room];
  }

  const xOf = step => LEFT + (step - zoom[0]) / (zoom[1] - zoom[0]) * (WIDTH - LEFT - RIGHT);
  const stepOf = x => zoom[0] + (x - LEFT) / (WIDTH - LEFT - RIGHT) * (zoom[1] - zoom[0]);

  function axes(group, y, yOf) {
    const dx = Math.max(1, nice(zoom[0], zoom[1], 8)), dy = nice(y[0], y[1], 5);
    group.textContent = '';
    for (let v = Math.ceil(y[0] / dy) * dy; v <= y[1]; v += dy) {
      element(group, 'path', { d: `M${LEFT} ${yOf(v)}H${WIDTH - RIGHT}` });
      element(group, 'text', { x: LEFT - 6, y: yOf(v) + 4, class: 'y' }).textContent = short(Math.abs(v) < dy / 2 ? 0 : v);
    }
    for (let v = Math.ceil(zoom[0] / dx) * dx; v <= zoom[1]; v += dx)
      element(group, 'text', { x: xOf(v), y: HEIGHT - 6 }).textContent = short(v);
  }

  function curve(s, yOf) {
    let d = '', drawing = false;
    const from = Math.max(0, search(s.step, zoom[0]) - 1);
    for (let i = from; i < s.step.length && (i === 0 || s.step[i - 1] <= zoom[1]); i++) {
      const there = s.lo[i] !== null, x = xOf(s.step[i]).toFixed(1);
      if (there) d += (drawing ? 'L' : 'M') + x + ' ' + yOf(s.lo[i]).toFixed(1);
      if (there && s.hi) d += 'V' + yOf(s.hi[i]).toFixed(1);
      if (there && !drawing) d += 'h0';
      drawing = there;
    }
    return d;
  }

  function draw(chart) {
    const y = rangeOf(chart), svg = chart.figure.querySelector('svg');
    if (!y) return;
    const yOf = v => HEIGHT - BOTTOM - (v - y[0]) / (y[1] - y[0]) * (HEIGHT - TOP - BOTTOM);
    axes(svg.querySelector('.axes'), y, yOf);
    const curves = svg.querySelector('.curves');
    curves.textContent = '';
    curves.setAttribute('clip-path', 'url(#inside)');
    for (const s of chart.series)
      element(curves, 'path', { class: `k${s.run % COLORS}${s.second ? ' second' : ''}`, d: curve(s, yOf) });
  }

  function zoomTo(from, to) {
    zoom = [Math.max(0, from), Math.min(data.last, to)];
    charts.forEach(draw);
  }

  // The point that a step is in, or the nearest.
  function nearest(s, step) {
    let i = search(s.step, step);
    if (i === s.step.length || (s.hi && s.step[i] > step && i > 0)) i--;
    else if (i > 0 && !s.hi && step - s.step[i - 1] < s.step[i] - step) i--;
    return i;
  }

  function valueText(s, step) {
    if (!s.step.length) return '';
    const i = nearest(s, step), name = data.runs[s.run] + (s.second ? ', ' + s.name : '');
    const value = s.lo[i] === null ? 'not finite' : s.hi && s.hi[i] > s.lo[i] ? `${short(s.lo[i])} to ${short(s.hi[i])}` : short(s.lo[i]);
    return `${name}: ${value} at step ${s.step[i]}${s.hi ? ' and on' : ''}\n`;
  }

  function listen(chart) {
    const svg = chart.figure.querySelector('svg');
    const cursor = element(svg, 'path', { class: 'cursor' }), selection = element(svg, 'rect', { class: 'selection', y: TOP, height: HEIGHT - TOP - BOTTOM });
    let tip = null, from = null;
    const at = event => {
      const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * WIDTH;
      return Math.min(WIDTH - RIGHT, Math.max(LEFT, x));
    };
    const clear = () => {
      if (tip) tip.remove();
      tip = from = null;
      cursor.setAttribute('d', '');
      selection.setAttribute('width', 0);
    };
    svg.addEventListener('mousemove', event => {
      const x = at(event), step = Math.round(stepOf(x)), box = svg.getBoundingClientRect();
      if (!tip) {
        tip = chart.figure.appendChild(document.createElement('div'));
        tip.className = 'tip';
      }
      tip.textContent = chart.series.map(s => valueText(s, step)).join('').trimEnd();
      tip.style.top = svg.offsetTop + 'px';
      const px = x / WIDTH * box.width;
      tip.style.left = (x > WIDTH / 2 ? px - tip.offsetWidth - 12 : px + 12) + 'px';
      cursor.setAttribute('d', `M${x} ${TOP}V${HEIGHT - BOTTOM}`);
      if (from === null) return;
      selection.setAttribute('x', Math.min(from, x));
      selection.setAttribute('width', Math.abs(x - from));
    });
    svg.addEventListener('mousedown', event => { from = at(event); event.preventDefault(); });
    svg.addEventListener('mouseup', event => {
      const x = at(event), start = from;
      clear();
      if (start !== null && Math.abs(x - start) > 4) zoomTo(stepOf(Math.min(start, x)), stepOf(Math.max(start, x)));
    });
    svg.addEventListener('mouseleave', clear);
    svg.addEventListener('dblclick', () => zoomTo(0, data.last));
  }

  const hidden = element(document.body, 'svg', { width: 0, height: 0 });
  element(element(hidden, 'clipPath', { id: 'inside' }), 'rect', { x: LEFT, y: 0, width: WIDTH - LEFT - RIGHT, height: HEIGHT });
  charts.forEach(listen);
})();
