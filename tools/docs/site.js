// A table that scrolls sideways takes the focus, so that the keys scroll it. The theme does the same for code.
const tables = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) {
      target.tabIndex = 0;
    } else {
      target.removeAttribute("tabindex");
    }
  }
});

document$.subscribe(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    tables.observe(table);
  }
});
