"""How fast the explorer is: one forward pass of 200 queries, and the frames of a drag, in headless Chromium.

Run `python benchmarks/explorer.py` after `make site`. The page aims at under 8 ms and at 60 frames a second.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import ARGUMENTS, find_browser  # noqa: E402

PASSES = """name => {
  const { weightsAt, line } = Explorer.model;
  const weights = weightsAt(Explorer.data.networks[name], 1);
  const context = Explorer.data.contexts.standard;
  const queries = d3.range(200).map(i => -3.5 + 7 * i / 199);
  return d3.range(200).map(() => {
    const start = performance.now();
    line(weights, context, queries, weights.eps ?? 1e-5, []);
    return performance.now() - start;
  });
}"""
# The point follows a mouse that moves at each frame: when each frame was due.
DRAG = """() => new Promise(done => {
  const dot = document.querySelectorAll(".explorer .point")[7];
  const box = dot.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const send = (type, target, dx, dy) => target.dispatchEvent(new MouseEvent(type,
    { bubbles: true, cancelable: true, view: window, clientX: x + dx, clientY: y + dy }));
  send("mousedown", dot, 0, 0);
  const times = [];
  let step = 0;
  const next = time => {
    times.push(time);
    if (++step > 240) { send("mouseup", window, 0, 0); done(times); return; }
    send("mousemove", window, 60 * Math.sin(step / 20), 40 * Math.cos(step / 20));
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})"""


def spread(values: np.ndarray) -> str:
    """Median and 95th percentile in ms."""
    return f"median {np.median(values):.2f} ms, 95 % below {np.quantile(values, 0.95):.2f} ms"


def busy(session: CDPSession) -> float:
    """Processor time of the page's thread so far, in ms: what else the machine does is not in it."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def measure(page: Page) -> None:
    """Print the times of the page."""
    for name in ("closed_form", "trained_1"):
        times = np.array(page.evaluate(PASSES, name))
        print(f"200 queries, {name}: {spread(times[20:])}")  # the first ones compile
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = busy(session)
    frames = np.diff(page.evaluate(DRAG))
    work = (busy(session) - before) / len(frames)
    print(f"a frame of a drag: {spread(frames)} ({1000 / np.mean(frames):.0f} frames a second)")
    print(f"of which the page's thread works {work:.2f} ms; 60 frames a second leave 16.67")


if __name__ == "__main__":
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        page = chromium.new_page(viewport={"width": 1440, "height": 1200})
        page.goto(
            (Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "_build/html") / "book/explorer.html").as_uri()
        )
        page.wait_for_selector(".explorer [data-number=answer][value]")
        measure(page)
        chromium.close()
