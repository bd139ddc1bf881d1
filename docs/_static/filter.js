// A box on the long pages of the reference that leaves only entries with the words typed into it.
// ?filter=WORDS in the address does the same.
"use strict";

const LONG = 60; // lines of tables on a page that gets a box

/** Show the lines of a section's own tables that hold all words; return how many. */
function filterTables(section, heading, matches) {
  let shown = 0;
  for (const table of section.querySelectorAll(":scope > .table-wrapper, :scope > table")) {
    let inTable = 0;
    for (const row of table.querySelectorAll("tbody tr")) {
      row.hidden = !matches(heading + " " + row.textContent);
      inTable += !row.hidden;
    }
    table.hidden = inTable === 0;
    shown += inTable;
  }
  return shown;
}

/** Show what holds all words in a section and the sections in it; return how many lines and texts. */
function filterSection(section, matches) {
  const title = section.querySelector(":scope > h1, :scope > h2, :scope > h3, :scope > h4");
  const heading = title ? title.textContent : "";
  let shown = filterTables(section, heading, matches);
  for (const part of section.children) {
    if (part.matches("section")) shown += filterSection(part, matches);
    else if (part.matches("p, ul, ol, dl, div.highlight-text") && matches(heading + " " + part.textContent)) shown += 1;
  }
  section.hidden = shown === 0;
  return shown;
}

/** Put the box below the title of the page. */
function addFilter(page) {
  const box = document.createElement("div");
  box.className = "page-filter";
  box.innerHTML = '<input type="search" placeholder="Filter this page by words" '
    + 'aria-label="Filter this page"><output></output>';
  const [input, count] = box.children;
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = filterSection(page, text => words.every(word => text.toLowerCase().includes(word)));
    page.hidden = false;
    count.textContent = words.length === 0 ? "" : shown === 1 ? "1 entry" : `${shown} entries`;
  };
  page.querySelector("h1").after(box);
  input.addEventListener("input", apply);
  input.value = new URLSearchParams(location.search).get("filter") || "";
  if (input.value) apply();
}

document.addEventListener("DOMContentLoaded", () => {
  const page = document.querySelector("article section");
  if (!page || !location.pathname.includes("/reference/")) return;
  if (page.querySelectorAll("tbody tr").length >= LONG) addFilter(page);
});
