// The transformer TF(D, 2, K) with linear self-attention, and the solvers beside it. Numbers only: no page, no drawing.
// Indices count from 0 here; what the reader sees counts from 1, as in the paper.
"use strict";
globalThis.Explorer ??= {};
Explorer.model = (() => {
  // The tensors of a forward pass in their order. `out` holds the terms whose sum is the answer, (17).
  const TENSORS = ["Q_1", "H_1", "LN_1", "Q_2", "H_2", "LN_2", "Q_3", "out"];
  const LAYERS = 2;

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // -- the solvers ---------------------------------------------------------------------------------------

  // Means, variance and covariance of a context {x, y}, (4) to (7).
  function moments({ x, y }) {
    const [x_bar, y_bar] = [mean(x), mean(y)];
    const dx = x.map((value) => value - x_bar);
    return { x_bar, y_bar, V: mean(dx.map((d) => d * d)), C: mean(dx.map((d, n) => d * (y[n] - y_bar))) };
  }

  const flat = (x) => x.every((value) => value === x[0]);

  // The slope of the least squares line, C/V; NaN where all x are equal.
  function slope(context) {
    const { V, C } = moments(context);
    return flat(context.x) ? NaN : C / V;
  }

  // ȳ + (C/V)(u − x̄), (8).
  function leastSquares(context, u) {
    const { x_bar, y_bar } = moments(context);
    return y_bar + slope(context) * (u - x_bar);
  }

  // T steps of descent on the slope from 0, (60) to (67); `relativeRate` is Nη.
  function descent(context, u, steps, relativeRate) {
    const { x_bar, y_bar, V, C } = moments(context);
    let theta = 0;
    for (let t = 0; t < steps; t++) theta += relativeRate * (C - theta * V);
    return y_bar + theta * (u - x_bar);
  }

  // The query's leverage h among the N + 1 points; NaN where all of them lie at one x.
  function leverage({ x }, u) {
    const points = [...x, u];
    if (flat(points)) return NaN;
    const centre = mean(points);
    const sum = points.reduce((total, value) => total + (value - centre) ** 2, 0);
    return 1 / points.length + (u - centre) ** 2 / sum;
  }

  // The same line, residuals and mean with every x − x̄ multiplied by `stretch`: V is multiplied by its square.
  function withSpread({ x, y }, stretch) {
    const { x_bar, V, C } = moments({ x, y });
    const dx = x.map((value) => value - x_bar);
    return { x: dx.map((d) => x_bar + stretch * d), y: y.map((value, n) => value + (C / V) * (stretch - 1) * dx[n]) };
  }

  // -- the network ---------------------------------------------------------------------------------------

  // A network of weights.js at a scale R, its arrays flat and row by row. R changes those that have `powers`.
  // The decimals of a float32 network are as short as float32 allows: rounded to float32 they are its weights.
  function weightsAt(network, R) {
    const { powers, float32 } = network;
    const flatten = (name) =>
      Float64Array.from([network[name]].flat(Infinity), (decimal, i) => {
        const w = float32 ? Math.fround(decimal) : decimal;
        return powers ? w * R ** powers[name][i] : w;
      });
    const [W_in, W1, W2, W3, W_out, b_out] = ["W_in", "W1", "W2", "W3", "W_out", "b_out"].map(flatten);
    const [D, K, S] = [network.W_in.length, network.W1[0].length, network.W_out.length];
    return {
      D,
      K,
      S,
      P: network.W_in[0].length,
      W_in,
      W1,
      W2,
      W3,
      W_out,
      b_out: b_out[0],
      layer_norm: network.layer_norm,
    };
  }

  // Arrays for one forward pass, to be used again and again.
  function newTrace({ S, D }) {
    const square = () => new Float64Array(D * D);
    const rows = () => Array.from({ length: LAYERS }, () => new Float64Array(S));
    return {
      tensors: TENSORS.map(() => new Float64Array(S * D)),
      A: Array.from({ length: LAYERS }, square),
      scratch: { gram: square(), left: square(), right: square(), row: new Float64Array(D) },
      mu: rows(),
      sigma: rows(),
      output: NaN,
    };
  }

  function cut(tensor, mask) {
    if (mask) for (let i = 0; i < tensor.length; i++) if (mask[i]) tensor[i] = 0;
  }

  // C += A·B for D × D matrices that start at the places a and b.
  function addProduct(C, A, a, B, b, D) {
    for (let i = 0; i < D; i++)
      for (let k = 0; k < D; k++) {
        const factor = A[a + i * D + k];
        if (factor !== 0) for (let j = 0; j < D; j++) C[i * D + j] += factor * B[b + k * D + j];
      }
  }

  function gramOf(Q, gram, S, D) {
    for (let i = 0; i < D; i++)
      for (let j = 0; j <= i; j++) {
        let sum = 0;
        for (let n = 0; n < S; n++) sum += Q[n * D + i] * Q[n * D + j];
        gram[i * D + j] = gram[j * D + i] = sum;
      }
  }

  // H += (Q W3)·B, row by row. Q W3 comes first: where W3 is large, it is there that large terms cancel.
  function addHead(Q, W3, at, B, H, row, S, D) {
    for (let n = 0; n < S; n++) {
      for (let i = 0; i < D; i++) {
        let sum = 0;
        for (let m = 0; m < D; m++) sum += Q[n * D + m] * W3[at + m * D + i];
        row[i] = sum;
      }
      for (let j = 0; j < D; j++) {
        let sum = 0;
        for (let i = 0; i < D; i++) sum += row[i] * B[i * D + j];
        H[n * D + j] += sum;
      }
    }
  }

  // H = Σ_k (Q W3)(W1 QᵀQ W2), (9), (11), (12), with QᵀQ first: a cost of N·D², no N×N product.
  // A = Σ_k W3 W1 QᵀQ W2, for which H = Q·A, is kept to be shown.
  function attend(weights, layer, Q, H, A, { gram, left, right, row }) {
    const { S, D, K, W1, W2, W3 } = weights;
    gramOf(Q, gram, S, D);
    H.fill(0);
    A.fill(0);
    for (let k = 0; k < K; k++) {
      const at = (layer * K + k) * D * D;
      left.fill(0);
      right.fill(0);
      addProduct(left, W1, at, gram, 0, D);
      addProduct(right, left, 0, W2, at, D);
      addProduct(A, W3, at, right, 0, D);
      addHead(Q, W3, at, right, H, row, S, D);
    }
  }

  // (13) to (15): population variance, eps inside the root, no affine part. σ is without eps, as in (14).
  function normalise(weights, H, LN, mu, sigma, eps) {
    const { S, D, layer_norm } = weights;
    for (let n = 0; n < S; n++) {
      let sum = 0;
      for (let d = 0; d < D; d++) sum += H[n * D + d];
      mu[n] = sum / D;
      let squares = 0;
      for (let d = 0; d < D; d++) squares += (H[n * D + d] - mu[n]) ** 2;
      sigma[n] = Math.sqrt(squares / D);
      const root = Math.sqrt(squares / D + eps);
      for (let d = 0; d < D; d++) LN[n * D + d] = layer_norm ? (H[n * D + d] - mu[n]) / root : H[n * D + d];
    }
  }

  // One forward pass, every intermediate kept in `trace`. `cuts[t]` marks the cells of tensor t that are set to 0.
  function forward(weights, context, u, eps, cuts, trace) {
    const { S, D, P, W_in, W_out } = weights;
    const [Q_1] = trace.tensors;
    for (let n = 0; n < S; n++) {
      const query = n === S - 1;
      const [x, y] = query ? [u, 0] : [context.x[n], context.y[n]]; // (1)
      for (let d = 0; d < D; d++) Q_1[n * D + d] = W_in[d * P] + W_in[d * P + 1] * x + W_in[d * P + 2] * y; // (10)
    }
    cut(Q_1, cuts[0]);
    for (let layer = 0; layer < LAYERS; layer++) {
      const first = 3 * layer;
      const [Q, H, LN, next] = trace.tensors.slice(first, first + 4);
      attend(weights, layer, Q, H, trace.A[layer], trace.scratch);
      cut(H, cuts[first + 1]);
      normalise(weights, H, LN, trace.mu[layer], trace.sigma[layer], eps);
      cut(LN, cuts[first + 2]);
      for (let i = 0; i < S * D; i++) next[i] = Q[i] + LN[i]; // (16)
      cut(next, cuts[first + 3]);
    }
    const [Q_3, out] = trace.tensors.slice(-2);
    for (let i = 0; i < S * D; i++) out[i] = W_out[i] * Q_3[i];
    cut(out, cuts[7]);
    trace.output = out.reduce((sum, term) => sum + term, weights.b_out); // (17)
    return trace;
  }

  // The answers at many queries: one forward pass each.
  function line(weights, context, queries, eps, cuts) {
    const trace = newTrace(weights);
    return Float64Array.from(queries, (u) => forward(weights, context, u, eps, cuts, trace).output);
  }

  return { TENSORS, moments, slope, leastSquares, descent, leverage, withSpread, weightsAt, newTrace, forward, line };
})();
