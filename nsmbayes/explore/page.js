// What the page does by itself: it moves the point under the pointer, tells the server, and waits for its answer before
// it tells the next place. So places never queue up, and what is drawn is always the newest.
"use strict";
window.nsmExplore = (() => {
  const NEAR = 24; // pixels
  const state = { row: -1, serial: 0, sent: null, next: null };
  const latencies = []; // milliseconds from the pointer's place to the curves that belong to it, drawn

  function nearest(figure, points, x, y) {
    const wide = figure.inner_width / (figure.x_range.end - figure.x_range.start);
    const high = figure.inner_height / (figure.y_range.end - figure.y_range.start);
    let best = -1, least = NEAR ** 2;
    for (let i = 0; i < points.data.x.length; i++) {
      const far = ((points.data.x[i] - x) * wide) ** 2 + ((points.data.y[i] - y) * high) ** 2;
      if (far < least) { best = i; least = far; }
    }
    return best;
  }

  function send(moved, place) {
    if (state.sent !== null) { state.next = [moved, place]; return; }
    state.sent = { ...place, serial: ++state.serial };
    moved.data = {
      serial: [state.sent.serial], row: [place.row], x: [place.x], y: [place.y], done: [place.done],
    };
  }

  function put(points, moved, flat, event, done) {
    const at = performance.now();
    points.data.x[state.row] = event.x;
    if (!flat) points.data.y[state.row] = event.y;
    points.change.emit();
    send(moved, { row: state.row, x: event.x, y: flat ? 0 : event.y, done, at });
  }

  return {
    latencies,
    write(words) {
      for (const [name, [text]] of Object.entries(words.data)) {
        const place = document.getElementById(`nsm-${name}`);
        if (place !== null && place.dataset.text !== text) { place.innerHTML = text; place.dataset.text = text; }
      }
    },
    start(figure, points, event) { state.row = nearest(figure, points, event.x, event.y); },
    move(points, moved, flat, event) { if (state.row >= 0) put(points, moved, flat, event, false); },
    end(points, moved, flat, event) {
      if (state.row >= 0) put(points, moved, flat, event, true);
      state.row = -1;
    },
    answer(points, answered, flat) {
      const { weight, colour, edge, serial } = answered.data;
      points.data.weight = weight; points.data.colour = colour; points.data.edge = edge;
      if (flat) points.data.y = Float64Array.from(weight);
      points.change.emit();
      const sent = state.sent;
      if (sent === null || serial[0] < sent.serial) return;
      state.sent = null;
      // the second frame begins when the first, with the new curves, has been painted
      requestAnimationFrame(() => requestAnimationFrame(() => latencies.push(performance.now() - sent.at)));
      if (state.next !== null) { const next = state.next; state.next = null; send(...next); }
    },
  };
})();
