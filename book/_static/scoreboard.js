// Sort and filter the scoreboard's tables in the page. Without it the whole table is there, in the paper's order.
"use strict";
for (const board of document.querySelectorAll(".scoreboard")) {
  const body = board.querySelector("tbody");
  const rows = [...body.rows];
  const heads = [...board.querySelectorAll("thead th")];
  const find = board.querySelector("input");
  const verdict = board.querySelector("select");
  const status = board.querySelector("[role=status]");

  function filter() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word));
      row.hidden = !fits || (verdict.value !== "" && row.dataset.verdict !== verdict.value);
      shown += row.hidden ? 0 : 1;
    }
    status.textContent = `${shown} of ${rows.length} claims shown`;
  }

  function sort(column) {
    const head = heads[column];
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const order = new Intl.Collator("en", { numeric: true }).compare;
    const key = (row) => row.cells[column].textContent;
    const sorted = [...rows].sort((a, b) => (falling ? -1 : 1) * order(key(a), key(b)));
    body.append(...sorted);
  }

  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));
  find.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  filter();
}
