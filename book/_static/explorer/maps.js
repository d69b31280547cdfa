// The tensors of the forward pass as heat maps: one grid each, four embeddings high, N context rows and the query wide.
"use strict";
globalThis.Explorer ??= {};
Explorer.maps = (() => {
  const { TENSORS } = Explorer.model;
  const { N, D, formatCell, parseCell } = Explorer.state;
  const { TITLES, ABOUT, EQUATIONS, number, name } = Explorer.cells;
  const SHADES = 64; // on either side of zero

  // Negative brown to positive purple, zero as the page's background: as in the book's figures.
  function palette() {
    const dark = document.documentElement.dataset.theme === "dark";
    const onDark = d3.scaleLinear([0, 0.25, 0.5, 0.75, 1], ["#fee0b6", "#b35806", "#121212", "#6a5299", "#d8daeb"]);
    const scale = dark ? onDark : (t) => d3.interpolatePuOr(1 - t);
    return d3.quantize(scale, 2 * SHADES + 1);
  }

  // The cells as text, which a browser reads in one go: made one by one they take several times as long.
  const cellAsHtml = (tensor, n, d) =>
    `<i role="gridcell" id="${formatCell({ tensor, n, d })}" ` +
    (n === N ? `class="of-query" tabindex="${d === 2 ? 0 : -1}"></i>` : 'tabindex="-1"></i>');
  const rowAsHtml = (tensor, d) =>
    `<div class="stripe" role="row"><span class="embedding" role="rowheader">${d + 1}</span>` +
    d3
      .range(N + 1)
      .map((n) => cellAsHtml(tensor, n, d))
      .join("") +
    '<span class="limit" aria-hidden="true"></span></div>';
  const figureAsHtml = (name, tensor) =>
    `<figure class="tensor"><figcaption id="caption-${name}">` +
    `<b>${TITLES[tensor]}</b> ${ABOUT[tensor]} <span class="number">${EQUATIONS[tensor]}</span></figcaption>` +
    `<div role="grid" aria-labelledby="caption-${name}" aria-rowcount="${D}" aria-colcount="${N + 1}">` +
    d3
      .range(D)
      .map((d) => rowAsHtml(tensor, d))
      .join("") +
    "</div></figure>";
  const HEADING =
    '<div class="stripe heading" aria-hidden="true">' +
    `<span></span><span>row 1</span><span>row ${N}</span><span>query</span></div>`;

  // `onInspect(cell)` is called when a cell is hovered or reached, `onCut(cell)` when it is clicked or Enter is pressed.
  function create(parent, { onInspect, onCut }) {
    parent.innerHTML = HEADING + TENSORS.map(figureAsHtml).join("");
    const nodes = TENSORS.map(() => new Array((N + 1) * D));
    for (const node of parent.querySelectorAll("i")) {
      const { tensor, n, d } = parseCell(node.id);
      nodes[tensor][n * D + d] = node;
    }
    const limitNodes = parent.querySelectorAll(".limit");
    let colours = palette();
    let marked = null; // the node of the inspected cell
    let known = false; // whether the pointer went down on it
    let shownCuts = TENSORS.map(() => null); // the masks that the nodes show
    const painted = TENSORS.map(() => new Int16Array((N + 1) * D).fill(-1)); // the shade each cell has

    function focus(cell) {
      const next = nodes[cell.tensor][cell.n * D + cell.d];
      for (const node of nodes[cell.tensor]) node.tabIndex = node === next ? 0 : -1;
      next.focus();
    }

    function key(event, cell) {
      const { n, d } = cell;
      const to = {
        ArrowLeft: { n: Math.max(0, n - 1) },
        ArrowRight: { n: Math.min(N, n + 1) },
        ArrowUp: { d: Math.max(0, d - 1) },
        ArrowDown: { d: Math.min(D - 1, d + 1) },
        Home: { n: 0 },
        End: { n: N },
      }[event.key];
      if (to) focus({ ...cell, ...to });
      else if (event.key === "Enter" || event.key === " ") onCut(cell);
      else return;
      event.preventDefault();
    }

    // One listener for all cells: it would take long to attach one to each.
    function listen(type, act) {
      parent.addEventListener(type, (event) => {
        const cell = parseCell(event.target.id);
        if (cell) act(event, cell);
      });
    }
    listen("pointerover", (event, cell) => event.pointerType === "mouse" && onInspect(cell));
    listen("focusin", (event, cell) => onInspect(cell));
    listen("keydown", key);
    // A finger cannot hover: its first tap shows the cell, its second cuts it.
    listen("pointerdown", ({ target }) => (known = target === marked));
    listen("click", (event, cell) => {
      focus(cell);
      if (event.pointerType !== "touch" || known) onCut(cell);
    });

    // Each embedding has its own scale, printed at its end: the constant columns are far larger than the others.
    function paint(trace) {
      for (let t = 0; t < TENSORS.length; t++) {
        const values = trace.tensors[t];
        for (let d = 0; d < D; d++) {
          let limit = 0;
          for (let n = 0; n <= N; n++) if (Math.abs(values[n * D + d]) > limit) limit = Math.abs(values[n * D + d]);
          const text = `±${number(limit)}`;
          if (limitNodes[t * D + d].textContent !== text) limitNodes[t * D + d].textContent = text;
          for (let n = 0; n <= N; n++) {
            const i = n * D + d;
            const shade = Number.isFinite(values[i])
              ? Math.round(SHADES * (1 + (limit && values[i] / limit)))
              : 2 * SHADES + 1;
            if (shade === painted[t][i]) continue;
            painted[t][i] = shade;
            nodes[t][i].style.backgroundColor = colours[shade] ?? "var(--pst-color-text-muted)";
          }
        }
      }
    }

    function repaint() {
      colours = palette();
      for (const shades of painted) shades.fill(-1);
    }

    function markCuts(cuts) {
      for (let t = 0; t < TENSORS.length; t++)
        if (cuts[t] !== shownCuts[t])
          nodes[t].forEach((node, i) => node.classList.toggle("cut", Boolean(cuts[t]?.[i])));
      shownCuts = cuts;
    }

    // Mark the inspected cell, and say to a screen reader what it is.
    function inspect(cell, value, isCut) {
      const node = nodes[cell.tensor][cell.n * D + cell.d];
      marked?.classList.remove("inspected");
      marked = node;
      node.classList.add("inspected");
      node.setAttribute(
        "aria-label",
        `${name(cell)}${cell.n === N ? ", the query" : ""}: ${number(value)}${isCut ? ", cut" : ""}`,
      );
    }

    return { paint, repaint, markCuts, inspect };
  }

  return { create };
})();
