/* A long table has a box: only rows with the words in it are shown. */
for (const table of document.querySelectorAll("table.sortable")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 12) continue;
  table.parentElement.classList.add("long");
  const label = Object.assign(document.createElement("label"), { className: "filter", textContent: "Only rows with " });
  const box = Object.assign(document.createElement("input"), { type: "search" });
  label.append(box);
  table.parentElement.before(label);
  const texts = rows.map(row => row.textContent.toLowerCase());
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    rows.forEach((row, place) => { row.hidden = !words.every(word => texts[place].includes(word)); });
  });
}

for (const table of document.querySelectorAll("table.sortable")) {
  table.tHead.rows[0].querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const numeric = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
        return (numeric ? x - y : x.localeCompare(y)) * (up ? 1 : -1);
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
    });
  });
}

/* What a mark in a figure stands for: by pointer, by touch, or with the arrow keys once the figure has the focus. */
const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
tip.setAttribute("role", "status");
document.body.append(tip);
const tell = point => {
  document.querySelector(".point.on")?.classList.remove("on");
  tip.hidden = !point;
  if (!point) return;
  point.classList.add("on");
  tip.textContent = point.dataset.text;
  const mark = point.getBoundingClientRect();
  const left = Math.min(mark.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(8, left) + window.scrollX}px`;
  tip.style.top = `${mark.top + window.scrollY - tip.offsetHeight - 6}px`;
};
for (const plot of document.querySelectorAll(".plot")) {
  const points = [...plot.querySelectorAll(".point")];
  for (const point of points) { // the browser's own title would come too, and late
    const title = point.querySelector("title");
    point.dataset.text = title.textContent;
    title.remove();
    point.addEventListener("pointerenter", () => tell(point));
    point.addEventListener("pointerleave", () => tell(null));
    point.addEventListener("click", () => tell(point));
  }
  let at = -1;
  plot.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") tell(null);
    const shown = points.filter(point => point.getClientRects().length); // those of folded panels have none
    if (!step || !shown.length) return;
    event.preventDefault();
    at = (at + step + shown.length) % shown.length;
    tell(shown[at]);
  });
  plot.addEventListener("blur", () => tell(null));
}

/* Raw data and the table of all cases are packed in the page. A browser that cannot unpack it saves it as it is. */
if ("DecompressionStream" in window) {
  for (const link of document.querySelectorAll("a.packed")) {
    const name = link.download.replace(/\.gz$/, "");
    if (link.textContent === link.download) link.textContent = name;
    link.download = name;
    link.addEventListener("click", async event => {
      if (!link.href.startsWith("data:")) return;
      event.preventDefault();
      const packed = (await fetch(link.href)).body;
      const whole = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).blob();
      const type = name.endsWith(".json") ? "application/json" : "text/csv";
      link.href = URL.createObjectURL(whole.slice(0, whole.size, type));
      link.click();
    });
  }
}

/* One page at a time, that of the anchor; without this script they stand one after another. */
const pages = [...document.querySelectorAll("main > .page")];
const tabs = [...document.querySelectorAll(".tabs a")];
const anchored = () => {
  try {
    return document.getElementById(decodeURIComponent(location.hash.slice(1)));
  } catch {
    return null; // no link of ours
  }
};
const turn = () => {
  const target = anchored();
  // What is on no page, as the contents, turns none.
  const shown = target ? target.closest(".page") ?? pages.find(page => !page.hidden) : pages[0];
  for (const page of pages) page.hidden = page !== shown;
  tabs.forEach((tab, place) => {
    if (pages[place] === shown) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  });
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  if (target) target.scrollIntoView({ behavior: "instant" });
  mark();
};

/* The contents mark the section that is being read: the last one whose beginning has passed the upper third. */
const places = [...document.querySelectorAll("#contents a")].map(link => [link, document.querySelector(link.hash)]);
const mark = () => {
  const passed = places.filter(([, section]) =>
    !section.closest("[hidden]") && section.getBoundingClientRect().top < window.innerHeight / 3);
  for (const [link] of places) link.removeAttribute("aria-current");
  passed.at(-1)?.[0].setAttribute("aria-current", "true");
};
window.addEventListener("scroll", mark, { passive: true });
window.addEventListener("hashchange", turn);
for (const page of pages) page.hidden = page !== pages[0];
turn();

/* The archive is linked only where the report was written; a page that was sent has it not beside it. */
for (const name of document.querySelectorAll("code.archive")) {
  if (!location.pathname.endsWith("/results/report.html")) continue;
  const link = Object.assign(document.createElement("a"), { href: name.textContent });
  name.replaceWith(link);
  link.append(name);
}

/* A click copies the summary, the citation or a figure's address; where that is not allowed, it selects the text. */
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  const source = document.getElementById(button.dataset.from);
  const folded = source.closest("details.source");
  if (folded) folded.hidden = true;
  button.addEventListener("click", async () => {
    const told = button.closest("p").querySelector(".copied");
    try {
      await navigator.clipboard.writeText(source.href ?? source.textContent);
      told.textContent = "Copied.";
    } catch {
      if (folded) Object.assign(folded, { hidden: false, open: true });
      window.getSelection().selectAllChildren(source);
      told.textContent = "Selected: copy it with the keyboard.";
    }
  });
}

/* Printed are the summary, the figures and what to use; everything, if the reader asks for it. */
for (const button of document.querySelectorAll("button.print")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const closed = document.querySelectorAll("details:not([open])");
    const whole = on => { document.body.classList.toggle("whole", on); closed.forEach(d => { d.open = on; }); };
    whole(true);
    window.addEventListener("afterprint", () => whole(false), { once: true });
    window.print();
  });
}

/* The calculator: the formula of report/forecast (calculator.py has the numbers). */
const calculator = document.getElementById("calculator");
if (calculator) {
  const data = JSON.parse(calculator.querySelector("script").textContent);
  const form = calculator.querySelector("form");
  const line = (points, x) => { // through the two points around x, or the two at the nearer end
    const found = points.findIndex(([at]) => at >= x);
    const right = points.length < 2 ? 0 : Math.max(1, found < 0 ? points.length - 1 : found);
    if (right === 0) return points[0][1];
    const [[a, low], [b, high]] = points.slice(right - 1, right + 1);
    return low + (high - low) * (x - a) / (b - a);
  };
  const local = (workload, batch) => Math.max(line(workload.local, batch), 0.9 * workload.local[0][1]);
  const median = values => values.sort((a, b) => a - b)[(values.length - 1) / 2];
  const step = (workload, network, asked, place, batch) => {
    const bytes = asked.bytes / workload.calls;
    const times = data.sizes.map((size, k) => [Math.log(size), Math.log(network.times[place][k])]);
    const exchange = data.counts[place] === 1 ? 0 : workload.calls * Math.exp(line(times, Math.log(bytes)));
    const alone = asked.seconds * local(workload, batch) / local(workload, asked.batch);
    const computes = alone * workload.company[place] * workload.slowest[place];
    if (data.counts[place] === 1) return alone;
    const waits = workload.overlap.map(([slowed, tail, room, extra, fixed]) => {
      const beside = slowed * exchange;
      return Math.max(tail * beside, beside - room * computes) + extra * computes + fixed;
    });
    return computes + median(waits);
  };
  const show = () => {
    const value = name => Number(form.elements[name].value);
    const asked = { bytes: 1e6 * value("megabytes"), seconds: value("milliseconds") / 1e3, batch: value("batch") };
    const body = calculator.querySelector("tbody");
    body.replaceChildren();
    if (!form.checkValidity()) return;
    const workload = data.workloads[value("workload")], network = data.networks[value("network")];
    data.counts.forEach((count, place) => {
      const row = body.insertRow();
      row.insertCell().textContent = count;
      const strong = asked.batch / count, each = step(workload, network, asked, place, asked.batch);
      const cells = [
        strong < 1 ? null : asked.seconds / count / step(workload, network, asked, place, strong),
        asked.seconds / each,
      ];
      for (const share of cells) {
        const cell = row.insertCell();
        cell.textContent = share === null ? "" : `${(100 * share).toFixed(0)} %`;
        if (share !== null && share < data.knee) cell.className = "low";
      }
      row.insertCell().textContent = `${(1e3 * each).toPrecision(3)} ms`;
    });
  };
  const fill = () => {
    const workload = data.workloads[form.elements.workload.value];
    form.elements.megabytes.value = (workload.bytes / 1e6).toPrecision(4);
    form.elements.milliseconds.value = (1e3 * workload.seconds).toPrecision(4);
    form.elements.batch.value = workload.batch;
    show();
  };
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("input", show);
  form.elements.workload.addEventListener("change", fill);
  for (const part of calculator.querySelectorAll("[hidden]")) part.hidden = false;
  fill();
}
