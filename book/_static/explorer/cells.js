// What a cell of a tensor is: its formula with its numbers in place, the paper's equation, and what the paper says it holds.
"use strict";
globalThis.Explorer ??= {};
Explorer.cells = (() => {
  const { TENSORS } = Explorer.model;
  const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉";

  const TITLES = ["Q₁", "H₁", "LN(H₁)", "Q₂", "H₂", "LN(H₂)", "Q₃", "output"];
  const ABOUT = [
    "the embedding of the tokens",
    "attention of layer 1",
    "layer norm of layer 1",
    "Q₁ + LN(H₁)",
    "attention of layer 2",
    "layer norm of layer 2",
    "Q₂ + LN(H₂)",
    "Q₃ times the output weights: the terms of the answer",
  ];
  const EQUATIONS = [
    "(10)",
    "(9), (11), (12)",
    "(13) to (15)",
    "(16)",
    "(9), (11), (12)",
    "(13) to (15)",
    "(16)",
    "(17)",
  ];

  // Four significant digits; a minus sign, not a hyphen.
  function number(value) {
    if (!Number.isFinite(value)) return "not a number";
    const size = Math.abs(value);
    const text = value === 0 ? "0" : size < 1e-3 || size >= 1e5 ? scientific(value) : value.toPrecision(4);
    return text.replaceAll("-", "−");
  }

  function scientific(value) {
    const [digits, power] = value.toExponential(2).split("e");
    const raised = [...power.replace("+", "")].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
    return `${digits}·10${raised}`;
  }

  const subscript = (digits) => [...String(digits)].map((c) => SUBSCRIPTS[c]).join("");
  const name = ({ tensor, n, d }) =>
    tensor === 7 ? `W_out·Q₃ [${n + 1}, ${d + 1}]` : `${TITLES[tensor]}[${n + 1}, ${d + 1}]`;

  // a·b + c·d + …, the factors of size 0 left out.
  function sum(pairs) {
    const shown = pairs
      .filter(([factor]) => factor !== 0)
      .map(([factor, value]) => `(${number(factor)})·(${number(value)})`);
    return shown.length ? shown.join(" + ") : "0";
  }

  // The formula of a cell, as a line of symbols and a line of numbers.
  function formula(cell, { weights, trace, context, u, eps }) {
    const { D, P, S, W_in, W_out } = weights;
    const { tensor, n, d } = cell;
    const [row, column] = [n + 1, d + 1];
    const at = (t, i = d) => trace.tensors[t][n * D + i];
    const l = tensor < 3 ? 1 : 2;
    const kind = TENSORS[tensor].split("_")[0];
    if (tensor === 0) {
      const token = n === S - 1 ? [1, u, 0] : [1, context.x[n], context.y[n]];
      const symbols = n === S - 1 ? ["1", "u", "0"] : ["1", `x${subscript(row)}`, `y${subscript(row)}`];
      const line = symbols.map((symbol, p) => `W_in[${column}, ${p + 1}]·${symbol}`).join(" + ");
      return [line, sum(token.map((value, p) => [W_in[d * P + p], value]))];
    }
    if (kind === "H") {
      const [before, A] = [3 * (l - 1), trace.A[l - 1]];
      const line = `Σᵢ Q${subscript(l)}[${row}, i]·A[i, ${column}], A = Σₖ W₃ W₁ (Q${subscript(l)}ᵀQ${subscript(l)}) W₂`;
      return [line, sum([0, 1, 2, 3].map((i) => [A[i * D + d], at(before, i)]))];
    }
    if (kind === "LN") {
      const [mu, sigma] = [trace.mu[l - 1][n], trace.sigma[l - 1][n]];
      const below = eps === 0 ? number(sigma) : `√(${number(sigma)}² + ${number(eps)})`;
      return [
        `(H${subscript(l)}[${row}, ${column}] − μ) / √(σ² + ε)`,
        `(${number(at(tensor - 1))} − (${number(mu)})) / ${below}`,
      ];
    }
    if (kind === "Q") {
      const line = `Q${subscript(l)}[${row}, ${column}] + LN(H${subscript(l)})[${row}, ${column}]`;
      return [line, `${number(at(tensor - 3))} + (${number(at(tensor - 1))})`];
    }
    return [`W_out[${row}, ${column}]·Q₃[${row}, ${column}]`, `(${number(W_out[n * D + d])})·(${number(at(6))})`];
  }

  // What the paper's construction has in each cell of a row, up to terms that vanish as N and R grow.
  const PAPER = [
    [
      "(19)",
      ["1", "x/(RN)", "y/(RN)", "√2 N/(N+1) − (x + y)/(RN)"],
      (m) => [1, m.x * m.s, m.y * m.s, (Math.SQRT2 * m.N) / (m.N + 1) - (m.x + m.y) * m.s],
    ],
    [
      "(31)",
      ["N", "−x̄/(√2R)", "−ȳ/(√2R)", "−N + (x̄ + ȳ)/(√2R)"],
      (m) => [m.N, -m.x_bar * m.r, -m.y_bar * m.r, -m.N + (m.x_bar + m.y_bar) * m.r],
    ],
    [
      "(34)",
      ["√2", "−x̄/(RN)", "−ȳ/(RN)", "−√2 + (x̄ + ȳ)/(RN)"],
      (m) => [Math.SQRT2, -m.x_bar * m.s, -m.y_bar * m.s, -Math.SQRT2 + (m.x_bar + m.y_bar) * m.s],
    ],
    [
      "(35)",
      ["1 + √2", "Δx/(RN)", "Δy/(RN)", "−√2/(N+1)"],
      (m) => [1 + Math.SQRT2, m.dx * m.s, m.dy * m.s, -Math.SQRT2 / (m.N + 1)],
    ],
    [
      "(49)",
      ["V", "CΔx/(√2RN)", "−CΔx/(√2RN)", "−V"],
      (m) => [m.V, (m.C * m.dx * m.s) / Math.SQRT2, (-m.C * m.dx * m.s) / Math.SQRT2, -m.V],
    ],
    [
      "(52)",
      ["√2", "(C/V)Δx/(RN)", "−(C/V)Δx/(RN)", "−√2"],
      (m) => [Math.SQRT2, (m.C / m.V) * m.dx * m.s, (-m.C / m.V) * m.dx * m.s, -Math.SQRT2],
    ],
    [
      "(53)",
      ["1 + 2√2", "(Δx + (C/V)Δx)/(RN)", "(Δy − (C/V)Δx)/(RN)", "−√2(N+2)/(N+1)"],
      (m) => [
        1 + 2 * Math.SQRT2,
        (m.dx + (m.C / m.V) * m.dx) * m.s,
        (m.dy - (m.C / m.V) * m.dx) * m.s,
        (-Math.SQRT2 * (m.N + 2)) / (m.N + 1),
      ],
    ],
    [
      "(56), read from cell (3, N+1)",
      ["0", "0", "ȳ + (C/V)(u − x̄)", "0"],
      (m) => (m.query ? [0, 0, -(m.dy - (m.C / m.V) * m.dx), 0] : [0, 0, 0, 0]),
    ],
  ];

  // The paper's expression for a cell of its construction: equation, symbols, value.
  function paper({ tensor, n, d }, { context, u, R }) {
    const m = Explorer.model.moments(context);
    const query = n === context.x.length;
    const [x, y, N] = query ? [u, 0, n] : [context.x[n], context.y[n], context.x.length];
    const [equation, symbols, values] = PAPER[tensor];
    const row = { ...m, N, query, x, y, dx: x - m.x_bar, dy: y - m.y_bar, s: 1 / (R * N), r: 1 / (Math.SQRT2 * R) };
    return { equation, symbols: tensor === 7 && !query ? "0" : symbols[d], value: values(row)[d] };
  }

  return { TITLES, ABOUT, EQUATIONS, number, name, formula, paper };
})();
