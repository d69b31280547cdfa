// What the reader has chosen, and its form in the address: #w=swapped&R=10&u=2.5&cut=out!51.3. No page, no drawing.
"use strict";
globalThis.Explorer ??= {};
Explorer.state = (() => {
  const { TENSORS, withSpread } = Explorer.model;
  const [N, D] = [50, 4];
  const CELLS = (N + 1) * D;

  // Limits of what can be chosen. `eps` is 0 or a power of ten; a network comes with its own.
  const LIMITS = {
    R: [0.01, 100],
    eps: [0, 0.1],
    spread: [0, 3],
    u: [-50, 50],
    T: [0, 10],
    rate: [0, 3],
    pull: [0, 1],
  };
  const WHOLE = ["T", "pull"];

  const start = () => ({
    w: "closed_form",
    R: 1,
    eps: null, // the network's own
    c: "standard",
    spread: 1,
    u: 1,
    T: Explorer.data.steps,
    rate: Explorer.data.relative_rate,
    pull: 0, // whether (1 − h)·ŷ is drawn too
    cell: { tensor: 6, n: N, d: 2 },
    cuts: TENSORS.map(() => null),
    moved: new Map(), // point -> [x, y]
  });

  // "H_2.51.1" counts from 1, as the paper does.
  const formatCell = ({ tensor, n, d }) => `${TENSORS[tensor]}.${n + 1}.${d + 1}`;

  function parseCell(text) {
    const [, name, n, d] = /^(\w+)\.(\d+)\.(\d+)$/.exec(text) ?? [];
    const cell = { tensor: TENSORS.indexOf(name), n: n - 1, d: d - 1 };
    return cell.tensor >= 0 && cell.n >= 0 && cell.n <= N && cell.d >= 0 && cell.d < D ? cell : null;
  }

  const index = ({ n, d }) => n * D + d;

  // A copy of `cuts` with one cell cut, or restored.
  function toggled(cuts, cell) {
    const copy = [...cuts];
    const mask = Uint8Array.from(copy[cell.tensor] ?? new Uint8Array(CELLS));
    mask[index(cell)] ^= 1;
    copy[cell.tensor] = mask.some(Boolean) ? mask : null;
    return copy;
  }

  // A copy of `cuts` in which every cell of a tensor is cut but one.
  function only(cuts, cell) {
    const copy = [...cuts];
    copy[cell.tensor] = new Uint8Array(CELLS).fill(1);
    copy[cell.tensor][index(cell)] = 0;
    return copy;
  }

  const isCut = (cuts, cell) => Boolean(cuts[cell.tensor]?.[index(cell)]);

  // The cut cells one by one; of a tensor that is cut for the most part, "out!51.3" names the cells that stay.
  function formatCuts(cuts) {
    return cuts.flatMap((mask, tensor) => {
      if (!mask) return [];
      const most = mask.reduce((sum, bit) => sum + bit, 0) > CELLS / 2;
      const cells = [...mask.keys()].filter((i) => Boolean(mask[i]) !== most);
      const names = cells.map((i) => `${Math.floor(i / D) + 1}.${(i % D) + 1}`);
      if (most && !names.length) return [`${TENSORS[tensor]}!`];
      return most ? [`${TENSORS[tensor]}!${names.join("+")}`] : names.map((name) => `${TENSORS[tensor]}.${name}`);
    });
  }

  function parseCuts(text, refused) {
    let cuts = TENSORS.map(() => null);
    for (const part of text.split(",").filter(Boolean)) {
      const [name, kept] = part.split("!");
      const cells =
        kept === undefined
          ? [parseCell(part)]
          : kept
              .split("+")
              .filter(Boolean)
              .map((at) => parseCell(`${name}.${at}`));
      if (cells.includes(null) || !TENSORS.includes(name.split(".")[0])) refused.push(`cut=${part}`);
      else if (kept === undefined) cuts = isCut(cuts, cells[0]) ? cuts : toggled(cuts, cells[0]);
      else {
        const mask = new Uint8Array(CELLS).fill(1);
        for (const cell of cells) mask[index(cell)] = 0;
        cuts[TENSORS.indexOf(name)] = mask;
      }
    }
    return cuts;
  }

  // The address of a state; what is as at the start is left out.
  function format(state) {
    const first = start();
    const parts = [`w=${state.w}`];
    for (const key of ["R", "eps", "c", "spread", "u", "T", "rate", "pull"])
      if (state[key] !== first[key]) parts.push(`${key}=${state[key]}`);
    if (formatCell(state.cell) !== formatCell(first.cell)) parts.push(`cell=${formatCell(state.cell)}`);
    const cuts = formatCuts(state.cuts);
    if (cuts.length) parts.push(`cut=${cuts.join(",")}`);
    const moved = [...state.moved].map(([n, [x, y]]) => `${n + 1}:${x}:${y}`);
    if (moved.length) parts.push(`move=${moved.join(",")}`);
    return parts.join("&");
  }

  function number(key, text, refused) {
    const [low, high] = LIMITS[key];
    const value = Number(text);
    if (text.trim() !== "" && value >= low && value <= high && (!WHOLE.includes(key) || Number.isInteger(value)))
      return value;
    refused.push(`${key}=${text}`);
    return undefined;
  }

  // The state that an address names, and the parts of it that make no sense and were left out.
  function parse(fragment) {
    const [state, refused] = [start(), []];
    for (const [key, text] of new URLSearchParams(fragment)) {
      const names = { w: Explorer.data.networks, c: Explorer.data.contexts }[key];
      if (key in LIMITS) state[key] = number(key, text, refused) ?? state[key];
      else if (key === "w" && text === "trained") state.w = Explorer.data.trained;
      else if (names && Object.hasOwn(names, text)) state[key] = text;
      else if (key === "cell" && parseCell(text)) state.cell = parseCell(text);
      else if (key === "cut") state.cuts = parseCuts(text, refused);
      else if (key === "move")
        for (const part of text.split(",")) {
          const [n, x, y] = part.split(":").map(Number);
          if (Number.isInteger(n) && n >= 1 && n <= N && Math.abs(x) <= 100 && Math.abs(y) <= 100)
            state.moved.set(n - 1, [x, y]);
          else refused.push(`move=${part}`);
        }
      else refused.push(`${key}=${text}`);
    }
    return { state, refused };
  }

  // The context before the reader moved single points.
  function spreadContext(state) {
    const context = Explorer.data.contexts[state.c];
    return state.spread === 1 ? context : withSpread(context, state.spread);
  }

  // The points {x, y} that are shown.
  function context(state) {
    const { x, y } = spreadContext(state);
    const shown = { x: [...x], y: [...y] };
    for (const [n, [px, py]] of state.moved) [shown.x[n], shown.y[n]] = [px, py];
    return shown;
  }

  const eps = (state) => state.eps ?? Explorer.data.networks[state.w].eps;

  return {
    LIMITS,
    N,
    D,
    start,
    format,
    parse,
    formatCell,
    parseCell,
    toggled,
    only,
    isCut,
    spreadContext,
    context,
    eps,
  };
})();
