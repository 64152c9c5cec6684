/* Keeps a page up to date: fetches it again when the server says that something was stored, and swaps the parts that differ. */
"use strict";
(() => {
  const AGAIN_MS = 1500;
  const FIELDS = "input[name]:not([type=hidden]), select[name]";
  const shown = new Map();
  let wanted = Number(document.body.dataset.seq || 0);
  let timer = null, isBusy = false, tookMs = 0, source = null; // `source` is null while nothing is listened to

  function note(root) {
    for (const part of root.querySelectorAll("[data-part]")) shown.set(part.dataset.part, part.innerHTML);
  }

  function prepare(root) {
    bisectStrip.buildAll(root);
    bisectDraw.drawAll(root);
  }

  function refill(field, value) {
    if (!field || field.value === value) return;
    if (field.matches("select") && ![...field.options].some((option) => option.value === value)) return;
    field.value = value;
  }

  function swap(next) {
    const before = document.getElementById("headline");
    for (const part of document.querySelectorAll("[data-part]")) {
      const other = next.querySelector(`[data-part="${part.dataset.part}"]`);
      if (!other || shown.get(part.dataset.part) === other.innerHTML) continue;
      if (part.contains(document.activeElement) && document.activeElement.matches("input, select")) continue; // somebody fills it in
      shown.set(part.dataset.part, other.innerHTML);
      const open = [...part.querySelectorAll("details[open][id]")].map((item) => item.id);
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      const kept = [...part.querySelectorAll("[data-keep]")].map((item) => [item.id, item.textContent]);
      const filled = [...part.querySelectorAll(FIELDS)].map((field) => [field.name, field.value]);
      part.replaceChildren(...document.importNode(other, true).childNodes);
      for (const [name, value] of filled) refill(part.querySelector(`[name="${name}"]`), value);
      for (const id of open) { const item = document.getElementById(id); if (item) item.open = true; }
      for (const [id, text] of kept) { const item = document.getElementById(id); if (item) item.textContent = text; }
      prepare(part);
      if (focused) { const item = document.getElementById(focused); if (item) item.focus({ preventScroll: true }); }
    }
    const after = document.getElementById("headline");
    const said = document.getElementById("said");
    if (said && before && after && before.textContent !== after.textContent) said.textContent = after.textContent;
    document.title = next.title;
    for (const name of ["seq", "live", "refresh"]) document.body.dataset[name] = next.body.dataset[name] || "";
  }

  /* Listens while there is something to hear, else looks again now and then where somebody may let it go on. */
  function follow() {
    const { live, refresh: every } = document.body.dataset;
    if (live && source === null) watch(live);
    else if (!live && every) timer = timer || setTimeout(look, 1000 * Number(every));
  }

  function look() {
    timer = null;
    if (document.hidden) follow();
    else refresh();
  }

  async function refresh() {
    timer = null;
    if (isBusy) { later(); return; }
    isBusy = true;
    const begun = performance.now();
    try {
      const answer = await fetch(window.location.href, { credentials: "same-origin" });
      if (answer.ok && !answer.redirected) {
        swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
        tookMs = performance.now() - begun;
      }
      if (Number(document.body.dataset.seq || 0) < wanted) later();
    } catch (error) {
      later();
    } finally {
      isBusy = false;
    }
    follow();
  }

  function later() {
    if (timer === null) timer = setTimeout(refresh, Math.max(AGAIN_MS, 3 * tookMs));
  }

  function soon() {
    if (timer === null) timer = setTimeout(refresh, Math.max(50, 2 * tookMs));
  }

  function say(text) {
    const place = document.getElementById("watching");
    if (place) place.textContent = text;
  }

  function fly(data) {
    const section = document.getElementById("flight");
    const rows = document.getElementById("flight-rows");
    const plot = document.getElementById("flight-plot");
    if (!section || !rows || !plot) return;
    section.hidden = !data.rows.length;
    const names = ["", "seed", "at", "loss"];
    rows.replaceChildren(...data.rows.map((row) => {
      const line = document.createElement("tr");
      row.forEach((text, idx) => {
        const cell = document.createElement(idx ? "td" : "th");
        if (idx) { cell.dataset.name = names[idx]; if (idx !== 2) cell.className = "num"; } else { cell.scope = "row"; cell.className = "text"; }
        cell.textContent = text;
        line.append(cell);
      });
      return line;
    }));
    plot.latest = data.figure;
    if (data.rows.length) bisectDraw.draw(plot);
    bisectStrip.mark(new Set(data.points.map(Number).filter((number) => Number.isInteger(number))));
  }

  function watch(address) {
    source = new EventSource(address);
    source.addEventListener("open", () => say("watching it live"));
    source.addEventListener("error", () => say("connection lost, trying again"));
    source.addEventListener("state", (event) => {
      const { seq } = JSON.parse(event.data);
      wanted = Math.max(wanted, seq);
      if (Number(document.body.dataset.seq || 0) < wanted) soon();
    });
    source.addEventListener("flight", (event) => fly(JSON.parse(event.data)));
    source.addEventListener("end", () => {
      source.close();
      source = null;
      say("");
      fly({ rows: [], points: [], figure: { kind: "lines", traces: [] } });
      later();
    });
  }

  /* Fields that the kind of question has no use for are not sent; the style sheet hides them. */
  function fitForm() {
    const form = document.getElementById("ask");
    if (!form) return;
    const kind = form.elements.kind.value;
    for (const part of form.querySelectorAll("[data-kind]")) part.disabled = part.dataset.kind !== kind;
    for (const field of form.querySelectorAll("[data-required-for]")) field.required = field.dataset.requiredFor === kind;
  }

  document.addEventListener("change", (event) => { if (event.target.name === "kind") fitForm(); });
  window.addEventListener("pageshow", fitForm); // a browser that goes back fills a form in again
  note(document);
  prepare(document);
  fitForm();
  follow();
})();
