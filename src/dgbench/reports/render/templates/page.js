// Sorting: a click on a header, or Enter on its button; absent values stay last.
for (const head of document.querySelectorAll("thead th")) {
  head.querySelector("button").addEventListener("click", () => {
    const column = head.cellIndex, body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.key;
    const number = head.classList.contains("number");
    const rows = Array.from(body.rows).sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      return (number ? x - y : x.localeCompare(y, undefined, {numeric: true})) * (up ? 1 : -1);
    });
    body.append(...rows);
  });
}
// What is folded opens for its address, for print, and all at once.
const folded = () => document.querySelectorAll("details.item, details.whole");
const open_target = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const whole = target.querySelector(":scope > details.whole");
  if (whole) whole.open = true;
  for (let at = target; at; at = at.parentElement) if (at.matches("details")) at.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", open_target);
open_target();
addEventListener("beforeprint", () => folded().forEach(each => each.open = true));
const unfold = document.querySelector(".unfold");
unfold.addEventListener("click", () => {
  const open = unfold.getAttribute("aria-pressed") !== "true";
  folded().forEach(each => each.open = open);
  unfold.setAttribute("aria-pressed", open);
  unfold.textContent = open ? "Fold everything" : "Open everything";
});
// Edges of a box are shaded where more follows.
const edges = box => {
  const inner = box.firstElementChild;
  const rest = inner.scrollWidth - inner.clientWidth - inner.scrollLeft;
  box.classList.toggle("left", inner.scrollLeft > 1);
  box.classList.toggle("right", rest > 1);
  box.classList.toggle("below", inner.scrollHeight - inner.clientHeight - inner.scrollTop > 1);
};
const resized = new ResizeObserver(entries => entries.forEach(entry => edges(entry.target.parentNode)));
for (const box of document.querySelectorAll(".box")) {
  resized.observe(box.firstElementChild);
  box.firstElementChild.addEventListener("scroll", () => edges(box), {passive: true});
}
// Contents: a folded bar on a narrow screen; beside the page it follows the section in sight.
const contents = document.querySelector(".contents"), narrow = matchMedia("(max-width: 52rem)");
const fold = () => contents.firstElementChild.open = !narrow.matches;
narrow.addEventListener("change", fold);
fold();
contents.addEventListener("click", event => { if (event.target.matches("a") && narrow.matches) fold(); });
contents.classList.add("follows");
const entries = new Map(Array.from(contents.querySelectorAll("a"), a => [a.getAttribute("href").slice(1), a.parentNode]));
const follow = () => {
  const sections = Array.from(document.querySelectorAll("main > section"));
  const here = sections.findLast(each => each.getBoundingClientRect().top < innerHeight / 3) || sections[0];
  for (const [name, entry] of entries) entry.classList.toggle("here", name === here.id);
};
addEventListener("scroll", follow, {passive: true});
follow();
