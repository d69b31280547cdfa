// Filter the scoreboard's tables in the page. Without it the whole table is there.
"use strict";
for (const board of document.querySelectorAll(".scoreboard")) {
  const body = board.querySelector("tbody");
  const rows = [...body.rows];
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

  find.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  filter();
}
