// The tensors of the forward pass as heat maps: one grid each, four embeddings high, N context rows and the query wide.
"use strict";
globalThis.Explorer ??= {};
Explorer.maps = (() => {
  const { TENSORS } = Explorer.model;
  const { N, D } = Explorer.state;
  const { TITLES, ABOUT, EQUATIONS, number, name } = Explorer.cells;
  const SHADES = 64; // on either side of zero

  // Negative brown to positive purple, zero as the page's background: as in the book's figures.
  function palette() {
    const dark = document.documentElement.dataset.theme === "dark";
    const onDark = d3.scaleLinear([0, 0.25, 0.5, 0.75, 1], ["#fee0b6", "#b35806", "#121212", "#6a5299", "#d8daeb"]);
    const scale = dark ? onDark : (t) => d3.interpolatePuOr(1 - t);
    return d3.quantize(scale, 2 * SHADES + 1);
  }

  // `onInspect(cell)` is called when a cell is hovered or reached, `onCut(cell)` when it is clicked or Enter is pressed.
  function create(parent, { onInspect, onCut }) {
    const cellsOf = (tensor, d) => d3.range(N + 1).map((n) => ({ tensor, n, d }));
    const header = d3.select(parent).append("div").attr("class", "stripe heading").attr("aria-hidden", "true");
    header
      .selectAll("span")
      .data(["", "row 1", "row 50", "query"])
      .join("span")
      .text((text) => text);
    const figures = d3
      .select(parent)
      .selectAll("figure")
      .data(d3.range(TENSORS.length))
      .join("figure")
      .attr("class", "tensor");
    figures
      .append("figcaption")
      .attr("id", (t) => `caption-${TENSORS[t]}`)
      .html((t) => `<b>${TITLES[t]}</b> ${ABOUT[t]} <span class="number">${EQUATIONS[t]}</span>`);
    const grids = figures
      .append("div")
      .attr("role", "grid")
      .attr("aria-labelledby", (t) => `caption-${TENSORS[t]}`)
      .attr("aria-rowcount", D)
      .attr("aria-colcount", N + 1);
    const rows = grids
      .selectAll("div")
      .data((tensor) => d3.range(D).map((d) => ({ tensor, d })))
      .join("div")
      .attr("class", "stripe")
      .attr("role", "row");
    rows
      .append("span")
      .attr("class", "embedding")
      .attr("role", "rowheader")
      .text(({ d }) => d + 1);
    const cells = rows
      .selectAll("i")
      .data(({ tensor, d }) => cellsOf(tensor, d))
      .join("i")
      .attr("role", "gridcell")
      .attr("tabindex", ({ n, d }) => (n === N && d === 2 ? 0 : -1))
      .attr("id", Explorer.state.formatCell)
      .classed("of-query", ({ n }) => n === N);
    const limits = rows.append("span").attr("class", "limit").attr("aria-hidden", "true");
    const nodes = TENSORS.map(() => new Array((N + 1) * D));
    cells.each(function ({ tensor, n, d }) {
      nodes[tensor][n * D + d] = this;
    });
    const limitNodes = limits.nodes();
    let colours = palette();
    let marked = null; // the node of the inspected cell
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

    cells
      .on("pointerenter", (event, cell) => event.pointerType === "mouse" && onInspect(cell))
      .on("focus", (event, cell) => onInspect(cell))
      .on("keydown", key)
      // A finger cannot hover: its first tap shows the cell, its second cuts it.
      .on("pointerdown", function () {
        this.dataset.known = this === marked;
      })
      .on("click", function (event, cell) {
        focus(cell);
        if (event.pointerType !== "touch" || this.dataset.known === "true") onCut(cell);
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
      cells.classed("cut", ({ tensor, n, d }) => Boolean(cuts[tensor]?.[n * D + d]));
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
