/* The changes as a strip: a list box whose options are the changes; arrow keys move, Enter opens one below it. */
"use strict";
const bisectStrip = (() => {
  const LEFT = 1, NAMED = 2, MANY = 120;
  let active = -1;
  let flying = new Set();

  function say(cell, idx, total) {
    const [name, , flags, , said, belief] = cell;
    const parts = [`${idx + 1} of ${total}: ${name}`];
    if (belief) parts.push(`belief ${belief}`);
    parts.push(`its version ${said}`);
    if (flags & NAMED) parts.push("proved");
    else if (flags & LEFT) parts.push("still possible");
    else parts.push("ruled out");
    return parts.join("; ");
  }

  function likeliest(cells) {
    let best = 0;
    cells.forEach((cell, idx) => { if ((cell[2] & NAMED) > (cells[best][2] & NAMED) || (cell[1] || 0) > (cells[best][1] || 0)) best = idx; });
    return best;
  }

  function build(box) {
    const cells = JSON.parse(document.getElementById(box.dataset.strip).textContent).cells;
    const top = Math.max(...cells.map((cell) => cell[1] || 0), 1e-12);
    box.cells = cells;
    box.classList.toggle("many", cells.length > MANY);
    const made = document.createDocumentFragment();
    cells.forEach((cell, idx) => {
      const option = document.createElement("div");
      const [, chance, flags, verdict] = cell;
      option.id = `change-${idx + 1}`;
      option.className = "cell";
      if (flags & LEFT) option.classList.add("left");
      if (flags & NAMED) option.classList.add("named");
      if (verdict) option.classList.add(`v-${verdict}`);
      if (chance !== null && chance >= 0.01 * top) option.classList.add("has");
      option.setAttribute("role", "option");
      option.setAttribute("aria-label", say(cell, idx, cells.length));
      option.setAttribute("aria-selected", "false");
      option.style.setProperty("--h", String((chance || 0) / top));
      const bar = document.createElement("span");
      bar.className = "bar";
      const shape = document.createElement("span");
      shape.className = "shape";
      option.append(bar, shape);
      made.append(option);
    });
    box.replaceChildren(made);
    let now = document.getElementById("strip-now");
    if (!now) {
      now = document.createElement("p");
      now.id = "strip-now";
      now.className = "strip-now";
      now.setAttribute("aria-hidden", "true");
      (document.querySelector(".strip-ends") || box).after(now);
    }
    size(box);
    if (active < 0 || active >= cells.length) active = likeliest(cells);
    select(box, active, false);
    mark(flying);
    box.addEventListener("keydown", (event) => press(box, event));
    box.addEventListener("click", (event) => {
      const option = event.target.closest(".cell");
      if (!option) return;
      select(box, [...box.children].indexOf(option), true);
      open(box, active);
    });
    box.addEventListener("mouseover", (event) => {
      const option = event.target.closest(".cell");
      if (option) now.textContent = option.getAttribute("aria-label");
    });
    box.addEventListener("mouseleave", () => select(box, active, false));
  }

  function size(box) {
    const num = box.cells.length;
    const inner = box.clientWidth - 8;
    const least = num > MANY ? 7 : 12;
    const width = Math.max(least, Math.min(84, Math.floor(inner / num) - 1));
    box.style.setProperty("--w", `${width}px`);
    box.perRow = Math.max(1, Math.floor(inner / (width + 1)));
  }

  function select(box, idx, isSeen) {
    const before = box.querySelector("[aria-selected=true]");
    if (before) before.setAttribute("aria-selected", "false");
    const option = box.children[idx];
    if (!option) return;
    active = idx;
    option.setAttribute("aria-selected", "true");
    box.setAttribute("aria-activedescendant", option.id);
    document.getElementById("strip-now").textContent = option.getAttribute("aria-label");
    if (isSeen) option.scrollIntoView({ block: "nearest" });
  }

  function press(box, event) {
    const last = box.cells.length - 1;
    const to = {
      ArrowRight: active + 1, ArrowLeft: active - 1, ArrowDown: active + box.perRow, ArrowUp: active - box.perRow,
      PageDown: active + 10, PageUp: active - 10, Home: 0, End: last,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      const isRow = event.key === "ArrowDown" || event.key === "ArrowUp";
      if (!isRow || (to >= 0 && to <= last)) select(box, Math.max(0, Math.min(last, to)), true);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(box, active);
    }
  }

  async function open(box, idx) {
    const place = document.getElementById("opened");
    const address = `${box.dataset.address}${idx + 1}`;
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) { window.location.href = address; return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const part = page.querySelector("[data-part=change]");
    if (!part) { window.location.href = address; return; }
    const heading = part.querySelector("h1");
    const smaller = document.createElement("h3");
    smaller.id = "opened-title";
    smaller.tabIndex = -1;
    smaller.append(...heading.childNodes);
    heading.replaceWith(smaller);
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => shut(box, place));
    const holder = document.createElement("section");
    holder.setAttribute("aria-labelledby", "opened-title");
    holder.append(...part.childNodes, close);
    place.replaceChildren(holder);
    place.onkeydown = (event) => { if (event.key === "Escape") shut(box, place); };
    smaller.focus();
  }

  function shut(box, place) {
    place.replaceChildren();
    (document.getElementById("strip") || box).focus();
  }

  function mark(numbers) {
    flying = numbers;
    for (const cell of document.querySelectorAll(".cell")) cell.classList.toggle("flying", numbers.has(Number(cell.id.slice(7))));
  }

  function buildAll(root) {
    for (const box of root.querySelectorAll("[data-strip]")) build(box);
  }

  window.addEventListener("resize", () => { for (const box of document.querySelectorAll("[data-strip]")) size(box); });
  return { buildAll, mark };
})();
