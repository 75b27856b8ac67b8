// The page works without this. With it, parts that carry data-live are replaced by those of a fresh copy of the page.
(() => {
  "use strict";

  const every = Number(document.body.dataset.liveEvery || 0) * 1000;
  const slowest = 30000, patience = 20000;
  const button = document.getElementById("live");
  let paused = sessionStorage.getItem("idem-paused") === "yes";
  let timer = 0, failures = 0, asking = false, over = false;

  function localTimes(root) {
    for (const t of root.querySelectorAll("time[datetime]")) {
      const at = new Date(t.dateTime);
      if (!Number.isNaN(at.valueOf())) t.title = "Here: " + at.toLocaleString();
    }
  }

  function showState(state, text) {
    if (!button) return;
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(!paused));
    button.querySelector(".live-text").textContent = text;
  }

  // Whoever is reading or typing in a part keeps it as it is.
  function inUse(part) {
    if (part.contains(document.activeElement) && document.activeElement !== document.body) return true;
    const chosen = document.getSelection();
    return Boolean(chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
  }

  function take(fresh) {
    for (const part of document.querySelectorAll("[data-live][id]")) {
      const next = fresh.getElementById(part.id);
      if (!next || part.isEqualNode(next) || inUse(part)) continue;
      const open = [...part.querySelectorAll("details")].map((d) => d.open);
      const node = document.importNode(next, true);
      [...node.querySelectorAll("details")].forEach((d, i) => { if (open[i]) d.open = true; });
      localTimes(node);
      part.replaceWith(node);
    }
    over = !fresh.body.dataset.liveEvery;
  }

  async function look() {
    if (asking) return;
    asking = true;
    clearTimeout(timer);
    const stop = new AbortController();
    const limit = setTimeout(() => stop.abort(), patience);
    try {
      const answer = await fetch(location.href.split("#")[0], { cache: "no-store", credentials: "same-origin", redirect: "error", signal: stop.signal });
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!paused) take(fresh);
      failures = 0;
      if (!paused) showState("live", over ? "Done" : "Live");
    } catch {
      failures++;
      if (!paused) showState("lost", "No connection");
    } finally {
      clearTimeout(limit);
      asking = false;
      plan();
    }
  }

  function plan() {
    clearTimeout(timer);
    if (paused || over || document.hidden) return;
    timer = setTimeout(look, Math.min(every * 2 ** failures, slowest));
  }

  function lively() {
    if (!every || !button) return;
    button.hidden = false;
    showState(paused ? "paused" : "live", paused ? "Paused" : "Live");
    button.addEventListener("click", () => {
      paused = !paused;
      sessionStorage.setItem("idem-paused", paused ? "yes" : "no");
      showState(paused ? "paused" : "live", paused ? "Paused" : "Live");
      if (paused) clearTimeout(timer); else look();
    });
    document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused && !over) look(); });
    plan();
  }

  function picker() {
    const all = document.getElementById("pick-all");
    if (!all) return;
    const form = all.form || all.closest("form");
    const boxes = () => [...form.querySelectorAll("input[name=at]")];
    const count = () => {
      const n = boxes().filter((b) => b.checked).length;
      all.checked = n > 0 && n === boxes().length;
      all.indeterminate = n > 0 && n < boxes().length;
      document.getElementById("picked").textContent = n ? n + " chosen" : "";
    };
    all.addEventListener("change", () => { for (const b of boxes()) b.checked = all.checked; count(); });
    form.addEventListener("change", count);
    count();
  }

  for (const part of document.querySelectorAll("[data-with-script]")) part.hidden = false;
  localTimes(document);
  picker();
  lively();
})();
