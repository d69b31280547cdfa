// Tables of class "sortable": a button in each head sorts the rows by that column, and again the other way round.
// Without this script they are plain tables, in the order in which they were written.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const words = new Intl.Collator("en", { numeric: true }).compare;

  function order(a, b) {
    const difference = Number(a) - Number(b);
    return a === "" || b === "" || Number.isNaN(difference) ? words(a, b) : difference;
  }

  function sort(column) {
    const falling = heads[column].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = (row) => row.cells[column].textContent.trim();
    body.append(...[...body.rows].sort((a, b) => (falling ? -1 : 1) * order(key(a), key(b))));
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(column));
    head.append(button);
  });
}
