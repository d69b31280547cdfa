// The picture: a context, a query, and the lines that the solvers draw through it. Points and query can be dragged.
"use strict";
globalThis.Explorer ??= {};
Explorer.plot = (() => {
  const MARGIN = { top: 22, right: 112, bottom: 24, left: 38 };
  const STEP = 0.1; // of an arrow key; five times that with Shift
  const snap = (value) => Math.round(value * 100) / 100;
  const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));

  // What is to be seen of a context and a query: the points, the least squares line and 0, with room to drag.
  function domains(context, u) {
    const [left, right] = d3.extent([...context.x, u]);
    const x = left >= -3.5 && right <= 3.5 ? [-3.5, 3.5] : [left - 2, right + 2];
    const ends = x.map((at) => Explorer.model.leastSquares(context, at)).filter(Number.isFinite);
    const [low, high] = d3.extent([0, ...context.y, ...ends]);
    return { x, y: [low - 0.5, high + 0.5] };
  }

  // `onPoint(n, x, y)` and `onQuery(u)` are called as the reader drags or presses keys, `onEnd()` after each.
  function create(svgNode, { onPoint, onQuery, onEnd }) {
    const svg = d3.select(svgNode);
    const [sx, sy] = [d3.scaleLinear(), d3.scaleLinear()];
    const axes = { x: svg.append("g").attr("class", "axis"), y: svg.append("g").attr("class", "axis") };
    axes.xLabel = svg.append("text").attr("class", "axis-label").attr("text-anchor", "end").text("x");
    axes.yLabel = svg.append("text").attr("class", "axis-label").text("y");
    const clip = svg.append("clipPath").attr("id", "explorer-clip").append("rect");
    const inside = svg.append("g").attr("clip-path", "url(#explorer-clip)");
    const zero = inside.append("line").attr("class", "zero");
    const curves = inside.append("g");
    const labels = svg.append("g");
    const points = svg.append("g").attr("role", "group").attr("aria-label", "Context points");
    const query = svg
      .append("g")
      .attr("class", "query")
      .attr("tabindex", 0)
      .attr("role", "slider")
      .attr("aria-label", "Query u");
    query.append("line").attr("class", "grip");
    query.append("line").attr("class", "rule");
    query.append("path").attr("class", "handle").attr("d", "M0,0l8,-12h-16z");
    query.append("circle").attr("class", "answer").attr("r", 5);
    query
      .append("text")
      .attr("x", 12)
      .attr("y", MARGIN.top - 4)
      .text("u");
    let [shown, current, frame] = [null, 0, ""]; // what was drawn last; the point that Tab reaches; size and domain

    query.call(
      d3
        .drag()
        .container(svgNode)
        .on("drag", (event) => onQuery(snap(clamp(sx.invert(event.x), sx.domain()))))
        .on("end", onEnd)
        .subject((event) => ({ x: sx(shown.u), y: event.y })),
    );
    query.on("keydown", (event) => {
      const step = { ArrowLeft: -STEP, ArrowDown: -STEP, ArrowRight: STEP, ArrowUp: STEP }[event.key];
      const [low, high] = sx.domain();
      const u = { Home: low, End: high }[event.key] ?? (step && shown.u + step * (event.shiftKey ? 5 : 1));
      if (u === undefined) return;
      event.preventDefault();
      onQuery(snap(clamp(u, [low, high])));
      onEnd();
    });

    const move = (n, x, y) => onPoint(n, snap(clamp(x, sx.domain())), snap(clamp(y, sy.domain())));
    const dragPoint = d3
      .drag()
      .container(svgNode)
      .subject((event, n) => ({ x: sx(shown.context.x[n]), y: sy(shown.context.y[n]) }))
      .on("drag", (event, n) => move(n, sx.invert(event.x), sy.invert(event.y)))
      .on("end", onEnd);

    function keyPoint(event, n) {
      const { x, y } = shown.context;
      const side = { PageUp: -1, PageDown: 1 }[event.key];
      const step = STEP * (event.shiftKey ? 5 : 1);
      const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
      if (!side && !by) return;
      event.preventDefault();
      if (by) {
        move(n, x[n] + by[0], y[n] + by[1]);
        onEnd();
        return;
      }
      const order = d3.sort(d3.range(x.length), (i) => x[i]);
      current = order[(order.indexOf(n) + side + order.length) % order.length];
      points
        .selectAll("g")
        .attr("tabindex", (i) => (i === current ? 0 : -1))
        .filter((i) => i === current)
        .node()
        .focus();
    }

    function drawPoints({ x, y }) {
      const marks = points
        .selectAll("g")
        .data(d3.range(x.length))
        .join((enter) => {
          const mark = enter
            .append("g")
            .attr("class", "point")
            .attr("role", "button")
            .attr("tabindex", (n) => (n === current ? 0 : -1));
          mark.append("circle").attr("class", "grip").attr("r", 10);
          mark.append("circle").attr("class", "dot").attr("r", 4);
          mark
            .on("keydown", keyPoint)
            .on("focus", (event, n) => (current = n))
            .call(dragPoint);
          return mark;
        });
      marks.attr("transform", (n) => `translate(${sx(x[n])},${sy(y[n])})`);
      marks.attr("aria-label", (n) => `Point ${n + 1}: x ${x[n].toFixed(2)}, y ${y[n].toFixed(2)}`);
    }

    // Labels at the right-hand ends, moved apart where lines end close together.
    function drawLabels(lines, [bottom, top]) {
      const ends = lines
        .map(({ name, colour, ys }) => ({ name, colour, end: ys.at(-1) }))
        .filter(({ end }) => Number.isFinite(end));
      const sorted = d3
        .sort(ends, ({ end }) => -end)
        .map((label) => ({ ...label, y: clamp(sy(label.end), [top, bottom]) }));
      for (let i = 1; i < sorted.length; i++) sorted[i].y = Math.max(sorted[i].y, sorted[i - 1].y + 15);
      const below = Math.max(0, (sorted.at(-1)?.y ?? 0) - bottom);
      const groups = labels
        .selectAll("g")
        .data(sorted, ({ name }) => name)
        .join((enter) => {
          const group = enter.append("g").attr("class", "line-label");
          group.append("line").attr("x2", 10);
          group.append("text").attr("x", 14).attr("dy", "0.35em");
          return group;
        });
      groups.attr("transform", ({ y }) => `translate(${sx.range()[1] + 3},${y - below})`);
      groups.select("line").attr("stroke", ({ colour }) => colour);
      groups.select("text").text(({ name }) => name);
    }

    // What stays as it is while points are dragged.
    function drawFrame(domain, width, height, right, bottom) {
      sx.domain(domain.x).range([MARGIN.left, right]);
      sy.domain(domain.y).range([bottom, MARGIN.top]);
      axes.x.attr("transform", `translate(0,${bottom})`).call(
        d3
          .axisBottom(sx)
          .ticks(width / 80)
          .tickSizeOuter(0),
      );
      axes.y.attr("transform", `translate(${MARGIN.left},0)`).call(
        d3
          .axisLeft(sy)
          .ticks(height / 50)
          .tickSizeOuter(0),
      );
      axes.xLabel.attr("x", right + 14).attr("y", bottom + 19);
      axes.yLabel.attr("x", MARGIN.left - 4).attr("y", MARGIN.top - 8);
      clip
        .attr("x", MARGIN.left)
        .attr("y", MARGIN.top)
        .attr("width", right - MARGIN.left)
        .attr("height", bottom - MARGIN.top);
      zero.attr("x1", MARGIN.left).attr("x2", right).attr("y1", sy(0)).attr("y2", sy(0));
    }

    // Draw {size: {width, height}, context, u, answer, domain, lines: [{name, colour, at, ys, dash, thick}], value}: each
    // line has answers ys at the queries `at`; `value` is what a screen reader says of the query.
    function update(next) {
      shown = next;
      const { context, u, answer, domain, lines, value } = next;
      const { width, height } = next.size;
      const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
      const asked = String([width, height, ...domain.x, ...domain.y]);
      if (asked !== frame) drawFrame(domain, width, height, right, bottom);
      frame = asked;
      const far = 10 * height; // a coordinate that is surely out of sight
      const path = d3
        .line(
          ([at]) => sx(at),
          ([, y]) => clamp(sy(y), [-far, far]),
        )
        .defined(([, y]) => Number.isFinite(y));
      curves
        .selectAll("path")
        .data(lines, ({ name }) => name)
        .join("path")
        .attr("class", "curve")
        .attr("stroke", ({ colour }) => colour)
        .attr("stroke-width", ({ thick }) => thick)
        .attr("stroke-dasharray", ({ dash }) => dash)
        .attr("data-line", ({ name }) => name)
        .attr("d", ({ at, ys }) => path(d3.zip(at, ys)));
      drawLabels(lines, [bottom, MARGIN.top]);
      drawPoints(context);
      const seen = Number.isFinite(answer);
      query
        .attr("transform", `translate(${sx(u)},0)`)
        .attr("aria-valuemin", domain.x[0])
        .attr("aria-valuemax", domain.x[1])
        .attr("aria-valuenow", u)
        .attr("aria-valuetext", value);
      query.selectAll("line").attr("y1", MARGIN.top).attr("y2", bottom);
      query.select(".handle").attr("transform", `translate(0,${MARGIN.top})`);
      query
        .select(".answer")
        .attr("cy", seen ? clamp(sy(answer), [MARGIN.top, bottom]) : 0)
        .attr("display", seen ? null : "none");
    }

    return { update };
  }

  return { create, domains };
})();
