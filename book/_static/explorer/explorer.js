// The page: what the reader does becomes the state, the state becomes numbers, the numbers are drawn.
"use strict";
globalThis.Explorer ??= {};
(() => {
  const { data, model, state: states, cells, plot: plots, maps } = Explorer;
  const QUERIES = 200;
  const root = document.querySelector(".explorer");
  const find = (selector) => root.querySelector(selector);
  const steps = [...document.querySelectorAll(".tour li")];

  let state; // what the reader has chosen
  let domain; // of the axes: kept while points are dragged
  let weights; // of the chosen network at the chosen R
  let trace; // the pass at the query
  let size; // of the picture in pixels, once the browser has laid it out
  let refused = []; // parts of the address that make no sense

  // -- from the state to the page ------------------------------------------------------------------------

  function setWeights() {
    weights = model.weightsAt(data.networks[state.w], state.R);
    trace = model.newTrace(weights);
  }

  function setDomain() {
    domain = plots.domains(states.spreadContext(state), state.u);
  }

  // The curves of the picture.
  function lines(context, eps) {
    const { colours, networks } = data;
    const ends = domain.x;
    const at = d3.range(QUERIES).map((i) => ends[0] + ((ends[1] - ends[0]) * i) / (QUERIES - 1));
    const pulled = (u) => (1 - model.leverage(context, u)) * model.leastSquares(context, u);
    const curves = [
      {
        name: "least squares",
        colour: colours.least_squares,
        at: ends,
        ys: ends.map((u) => model.leastSquares(context, u)),
        thick: 2,
      },
      {
        name: `descent, T = ${state.T}`,
        colour: colours.descent,
        at: ends,
        ys: ends.map((u) => model.descent(context, u, state.T, state.rate)),
        thick: 2,
        dash: "2 4",
      },
      {
        name: "transformer",
        colour: networks[state.w].colour,
        at,
        ys: model.line(weights, context, at, eps, state.cuts),
        thick: 3,
      },
    ];
    if (state.pull)
      curves.push({
        name: "(1 − h)·ŷ",
        colour: "var(--pst-color-text-base)",
        at,
        ys: at.map(pulled),
        thick: 1.5,
        dash: "6 4",
      });
    return curves;
  }

  function numbers(context) {
    const { u } = state;
    const squares = model.leastSquares(context, u);
    const h = model.leverage(context, u);
    return {
      answer: trace.output,
      least_squares: squares,
      difference: trace.output - squares,
      pulled: (1 - h) * squares,
      leverage: h,
      descent: model.descent(context, u, state.T, state.rate),
      V: model.moments(context).V,
      sigma_1: trace.sigma[0].at(-1),
      sigma_2: trace.sigma[1].at(-1),
    };
  }

  function status(context, values) {
    const faults = [];
    if (refused.length) faults.push(`Left out of the address, for want of a meaning: ${refused.join(" ")}.`);
    if (Number.isNaN(values.least_squares))
      faults.push("All x are equal: V = 0, no slope fits better than another, and least squares has no answer.");
    if (!Number.isFinite(values.answer))
      faults.push("The transformer has no answer: a layer norm divides by σ = 0. An ε above 0 gives one.");
    const cut = state.cuts.reduce((sum, mask) => sum + (mask ? mask.reduce((a, b) => a + b, 0) : 0), 0);
    if (cut) faults.push(`${cut} ${cut === 1 ? "cell is" : "cells are"} cut.`);
    return faults.join(" ");
  }

  function setText(node, text) {
    if (node.textContent !== text) node.textContent = text; // so that a screen reader hears changes alone
  }

  function showCell(context, eps) {
    const { tensor, n, d } = state.cell;
    const value = trace.tensors[tensor][n * states.D + d];
    const cut = states.isCut(state.cuts, state.cell);
    const [symbols, filled] = cells.formula(state.cell, { weights, trace, context, u: state.u, eps });
    setText(find(".cell-name"), cells.name(state.cell));
    find(".cell-value").value = value;
    setText(find(".cell-value"), cells.number(value));
    setText(find(".cell-equation"), cells.EQUATIONS[tensor]);
    setText(find(".cell-symbols"), `= ${symbols}`);
    setText(find(".cell-numbers"), cut ? "cut: set to 0" : `= ${filled}`);
    const writtenDown = state.w === "closed_form" || (state.w === "repaired" && tensor < 7);
    const paper = writtenDown && cells.paper(state.cell, { context, u: state.u, R: state.R });
    setText(
      find(".cell-paper"),
      paper ? `The paper: ≃ ${paper.symbols} = ${cells.number(paper.value)}, ${paper.equation}` : "",
    );
    setText(find("[data-do=cut]"), cut ? "Restore this cell" : "Cut this cell");
    heatMaps.inspect(state.cell, value, cut);
  }

  function showControls() {
    const network = data.networks[state.w];
    const eps = states.eps(state);
    find("[name=w]").value = state.w;
    setText(find(".about"), network.about);
    find("[name=R]").value = Math.log10(state.R);
    find("[name=R]").disabled = !network.powers;
    setText(find("[data-of=R]"), network.powers ? cells.number(state.R) : "fixed");
    find("[name=eps]").value = eps === 0 ? 0 : Math.round(Math.log10(eps)) + 13;
    setText(find("[data-of=eps]"), cells.number(eps));
    for (const key of ["spread", "T", "rate"]) {
      find(`[name=${key}]`).value = state[key];
      setText(find(`[data-of=${key}]`), String(state[key]));
    }
    find("[name=pull]").checked = state.pull === 1;
    for (const button of root.querySelectorAll("[data-context]"))
      button.setAttribute("aria-pressed", button.dataset.context === state.c);
    setText(find(".note"), find(`[data-context=${state.c}]`).dataset.note);
  }

  // One frame: a forward pass at the query, 200 for the line, and everything drawn.
  function render() {
    const context = states.context(state);
    const eps = states.eps(state);
    model.forward(weights, context, state.u, eps, state.cuts, trace);
    const values = numbers(context);
    const value = `u = ${state.u.toFixed(2)}: transformer ${cells.number(values.answer)}, least squares ${cells.number(values.least_squares)}`;
    plot.update({ size, context, u: state.u, answer: values.answer, domain, lines: lines(context, eps), value });
    for (const [key, number] of Object.entries(values)) {
      const node = find(`[data-number=${key}]`);
      node.value = number;
      setText(node, cells.number(number));
    }
    heatMaps.paint(trace);
    showCell(context, eps);
    setText(find("[role=status]"), status(context, values));
  }

  let frame = 0;
  function draw() {
    if (!size) return; // the first size draws
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      render();
    });
  }

  // -- from the reader to the state ----------------------------------------------------------------------

  let timer = 0;
  // Browsers allow few changes of the address a second: write it when the reader pauses.
  function remember() {
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(null, "", `#${states.format(state)}`), 200);
  }

  function change(changes, { weightsToo = false, domainToo = false, controls = false } = {}) {
    Object.assign(state, changes);
    refused = [];
    if (weightsToo) setWeights();
    if (domainToo) setDomain();
    if (controls) showControls();
    if ("cuts" in changes) heatMaps.markCuts(state.cuts);
    draw();
    remember();
  }

  // Take the state from the address: a step of the tour, or what someone shared.
  function load() {
    clearTimeout(timer);
    const fragment = decodeURIComponent(location.hash.slice(1));
    const step = steps.find(({ id }) => id === (fragment || "tour-1"));
    ({ state, refused } = states.parse(step ? step.dataset.state : fragment));
    for (const other of steps) {
      if (other === step) other.querySelector("a").setAttribute("aria-current", "step");
      else other.querySelector("a").removeAttribute("aria-current");
    }
    setWeights();
    setDomain();
    showControls();
    heatMaps.markCuts(state.cuts);
    draw();
  }

  const plot = plots.create(find("svg"), {
    onPoint: (n, x, y) => {
      state.moved.set(n, [x, y]);
      draw();
    },
    onQuery: (u) => {
      state.u = u;
      draw();
    },
    onEnd: remember,
  });
  const heatMaps = maps.create(find(".tensors"), {
    onInspect: (cell) => change({ cell }),
    onCut: (cell) => change({ cell, cuts: states.toggled(state.cuts, cell) }),
  });

  d3.select(find("[name=w]"))
    .selectAll("option")
    .data(Object.entries(data.networks))
    .join("option")
    .attr("value", ([key]) => key)
    .text(([, { label }]) => label);
  root.addEventListener("input", ({ target }) => {
    const { name, value } = target;
    if (name === "w") change({ w: value, eps: null }, { weightsToo: true, controls: true });
    else if (name === "R") change({ R: Number((10 ** value).toPrecision(2)) }, { weightsToo: true, controls: true });
    else if (name === "eps") change({ eps: value === "0" ? 0 : Number(`1e${value - 13}`) }, { controls: true });
    else if (name === "spread")
      change({ spread: Number(value), moved: new Map() }, { domainToo: true, controls: true });
    else if (name === "pull") change({ pull: Number(target.checked) });
    else change({ [name]: Number(value) }, { controls: true });
  });
  root.addEventListener("click", ({ target }) => {
    if (target.dataset.context) {
      const { x } = data.contexts[target.dataset.context];
      const u = Math.round((d3.mean(x) + 1) * 100) / 100; // one to the right of the middle, as at the start
      change({ c: target.dataset.context, spread: 1, moved: new Map(), u }, { domainToo: true, controls: true });
    }
    const { cuts, cell } = state;
    if (target.dataset.do === "cut") change({ cuts: states.toggled(cuts, cell) });
    else if (target.dataset.do === "only") change({ cuts: states.only(cuts, cell) });
    else if (target.dataset.do === "restore") change({ cuts: cuts.map(() => null) });
    else if (target.dataset.do === "again") change({ moved: new Map() });
  });
  addEventListener("hashchange", load);
  // To ask for the size at each frame would make the browser lay the page out in the middle of it.
  new ResizeObserver(([{ contentRect }]) => {
    size = contentRect;
    draw();
  }).observe(find("svg"));
  new MutationObserver(() => {
    heatMaps.repaint();
    draw();
  }).observe(document.documentElement, { attributeFilter: ["data-theme"] });

  load();
})();
