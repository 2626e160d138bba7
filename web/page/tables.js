// Tables and lists. Only what has changed is written, and names are only ever text: they may be anything.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(number) {
  let unit = 0;
  for (; number >= 1024 && unit < UNITS.length - 1; unit++) number /= 1024;
  return `${number >= 100 || Number.isInteger(number) ? Math.round(number) : number.toFixed(1)} ${UNITS[unit]}`;
}

export function ms(number) {
  if (number === null || number === undefined) return "–";
  if (number >= 1000) return `${(number / 1000).toFixed(number >= 10_000 ? 0 : 1)} s`;
  return `${number >= 100 ? Math.round(number) : number.toFixed(number >= 10 ? 1 : 2)} ms`;
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const times = (summary) => (summary && summary.count ? `${ms(summary.p50)} / ${ms(summary.p99)}` : "–");
const HEADS = [
  ["program", (row) => row.name, "name"],
  ["class", (row) => (row.weight > 1 ? `${row.class} × ${row.weight}` : row.class), ""],
  ["state", (row) => row.standing, "state"],
  ["GPU, 60 s", (row) => `${(row.share * 100).toFixed(row.share && row.share < 0.1 ? 1 : 0)} %`, "figure"],
  ["GPU time", (row) => `${row.gpu_seconds.toFixed(1)} s`, "figure"],
  ["resident", (row) => bytes(row.resident_bytes), "figure"],
  ["evicted", (row) => bytes(row.evicted_bytes), "figure"],
  ["unmanaged", (row) => bytes(row.unmanaged_bytes), "figure"],
  ["waits P50 / P99", (row) => times(row.waits), "figure"],
  ["requests P50 / P99", (row) => times(row.requests) + (row.slo_misses ? `, ${row.slo_misses} late` : ""), "figure"],
];
/** Which of them is the state. */
const STATE = 2;
const ORDERS = {
  name: () => 0,
  state: (row) => ["running", "loading", "stopping", "waiting", "preempted", "suspended", "unresponsive", "idle", "evicted"].indexOf(row.state),
  share: (row) => -row.share,
  memory: (row) => -(row.resident_bytes + row.evicted_bytes + row.unmanaged_bytes),
  wait: (row) => -(row.waits?.max ?? 0),
};
/** How many rows there are at first, and how many more each time. */
const FIRST = 25;
const MORE = 100;
const names = new Intl.Collator(undefined, { numeric: true });

/** The table of programs: at most so many rows, however many there are. */
export class Programs {
  constructor(act) {
    this.act = act;
    this.control = false;
    this.all = new Map();
    this.rows = new Map();
    this.most = FIRST;
    this.ordered = 0;
    const get = (id) => document.getElementById(id);
    [this.body, this.find, this.sort, this.shown, this.more, this.none] = ["rows", "find", "sort", "shown", "more", "none"].map(get);
    this.heads = get("heads");
    const anew = () => this.order();
    this.find.addEventListener("input", anew);
    this.sort.addEventListener("change", anew);
    this.more.addEventListener("click", () => {
      this.most += MORE;
      this.order();
    });
  }

  see(changed, gone, all, control) {
    if (control !== this.control || !this.heads.childElementCount) {
      this.control = control;
      this.head();
    }
    if (all) this.all.clear();
    const before = this.all.size;
    for (const id of gone) this.all.delete(id);
    let is_new = all || before !== this.all.size;
    for (const row of changed) {
      is_new ||= !this.all.has(row.id);
      this.all.set(row.id, row);
      const shown = this.rows.get(row.id);
      if (shown) this.write(shown, row);
    }
    // Rows do not move all the time, and not under a pointer.
    const is_old = this.sort.value !== "name" && Date.now() - this.ordered > 2000 && !this.body.matches(":hover");
    if (is_new || is_old) this.order();
  }

  head() {
    this.rows.clear();
    this.body.replaceChildren();
    const cells = HEADS.map(([text, , kind]) => make("th", { role: "columnheader", scope: "col", class: kind }, text));
    if (this.control) cells.push(make("th", { role: "columnheader", scope: "col" }, make("span", { class: "unseen" }, "do")));
    this.heads.replaceChildren(...cells);
  }

  order() {
    // A user about to press something in the table is not disturbed.
    if (this.body.contains(document.activeElement) && this.rows.size) {
      const ids = [...this.rows.keys()];
      if (ids.every((id) => this.all.has(id))) return;
    }
    this.ordered = Date.now();
    const wanted = this.find.value.trim().toLowerCase();
    const fits = (row) => !wanted || [row.name, row.class, row.state, row.container, row.pod].some((text) => text?.toLowerCase().includes(wanted));
    const key = ORDERS[this.sort.value];
    const list = [...this.all.values()].filter(fits).sort((a, b) => key(a) - key(b) || names.compare(a.name, b.name));
    const shown = list.slice(0, this.most);
    const keep = new Set(shown.map((row) => row.id));
    for (const [id, { line }] of this.rows) {
      if (!keep.has(id)) {
        line.remove();
        this.rows.delete(id);
      }
    }
    let at = this.body.firstElementChild;
    for (const row of shown) {
      let there = this.rows.get(row.id);
      if (!there) this.rows.set(row.id, (there = this.make(row)));
      this.write(there, row);
      if (there.line === at) at = at.nextElementSibling;
      else this.body.insertBefore(there.line, at);
    }
    say(this.shown, shown.length < list.length ? `${shown.length} of ${list.length} programs` : "");
    this.more.hidden = shown.length >= list.length;
    this.none.hidden = shown.length > 0;
    say(this.none, this.all.size ? "No program fits." : "No programs yet. Start one with: baton run -- PROGRAM");
  }

  make(row) {
    const cells = HEADS.map(([text, , kind]) => make("td", { role: "cell", class: kind, "data-head": text }));
    const line = make("tr", { role: "row" }, ...cells);
    // The state has a dot before its word.
    const state = cells[STATE].appendChild(make("span"));
    const there = { line, cells, texts: cells.map((cell, at) => (at === STATE ? state : cell)) };
    const where = [row.container && `container ${row.container}`, row.pod && `pod ${row.pod}`].filter(Boolean).join(", ");
    cells[0].append(make("span", {}, row.name));
    if (where) cells[0].append(make("small", {}, where));
    if (this.control) {
      there.toggle = make("button", { type: "button" });
      const evict = make("button", { type: "button", "aria-label": `Evict ${row.name}` }, "Evict");
      there.pick = make("select", { "aria-label": `Class of ${row.name}` }, ...["latency", "normal", "batch"].map((name) => make("option", {}, name)));
      there.toggle.addEventListener("click", () => {
        // To resume a program harms no other, so it needs no second click; to suspend one does.
        if (!there.suspended && !there.asked) return this.ask(there, row, true);
        this.act({ do: there.suspended ? "resume" : "suspend", name: row.name }, there.toggle);
        this.ask(there, row, false);
      });
      there.toggle.addEventListener("blur", () => this.ask(there, row, false));
      evict.addEventListener("click", () => this.act({ do: "evict", name: row.name }, evict));
      there.pick.addEventListener("change", () => this.act({ do: "class", name: row.name, class: there.pick.value }, there.pick));
      const acts = make("div", { class: "acts" }, there.pick, there.toggle, evict);
      line.append(make("td", { role: "cell", class: "do" }, acts));
    }
    return there;
  }

  /** With `asked`, a second click suspends the program: the button asks for it, until something else is done. */
  ask(there, row, asked) {
    there.asked = asked;
    this.name(there, row);
  }

  name(there, row) {
    const word = there.suspended ? "Resume" : there.asked ? "Sure?" : "Suspend";
    if (there.word === word) return;
    there.word = word;
    say(there.toggle, word);
    there.toggle.setAttribute("aria-label", there.asked && !there.suspended ? `Suspend ${row.name}? Again to do it` : `${word} ${row.name}`);
  }

  write(there, row) {
    HEADS.forEach(([, text], at) => at && say(there.texts[at], text(row)));
    const { dataset } = there.texts[STATE];
    if (dataset.state !== row.state) dataset.state = row.state;
    if (!there.toggle) return;
    there.suspended = row.suspended;
    this.name(there, row);
    if (there.pick !== document.activeElement && there.pick.value !== row.class) there.pick.value = row.class;
  }
}

/** A bar of parts, and a list of what they are. */
export function memory(top) {
  const { total_bytes: total, lines } = top.ledger;
  stack("memory-bar", lines, total);
  const body = document.getElementById("lines");
  lines.forEach(([name, size], at) => {
    let line = body.children[at];
    if (!line) {
      const cell = (...parts) => make("td", { role: "cell" }, ...parts);
      body.append((line = make("tr", { role: "row" }, cell(make("i", { class: `m-${name}` }), WORDS[name] ?? name), cell(), cell())));
      line.children[1].className = line.children[2].className = "figure";
    }
    say(line.children[1], bytes(size));
    say(line.children[2], total ? `${((100 * size) / total).toFixed(1)} %` : "–");
  });
  const { bytes: all, ready_bytes: ready, used_bytes: used } = top.host_pool;
  stack("pool-bar", [["used", used], ["free", ready - used], ["unprepared", all - ready]], all);
  say(document.getElementById("pool"), `${bytes(used)} used of ${bytes(all)}${ready < all ? `, ${bytes(all - ready)} not ready yet` : ""}`);
}

const WORDS = {
  lent: "lent to programs",
  free: "free in the arena",
  headroom: "headroom, kept free",
  unmanaged: "unmanaged, of programs",
  contexts: "contexts",
  own: "the coordinator's own",
  hidden: "hidden, the driver's",
  promised: "promised, not used yet",
  beside: "free beside the arena",
};

function stack(id, parts, total) {
  const bar = document.getElementById(id);
  parts.forEach(([name, size], at) => {
    const part = bar.children[at] ?? bar.appendChild(make("i", { class: `m-${name}` }));
    const width = `${total ? (100 * size) / total : 0}%`;
    if (part.style.width !== width) part.style.width = width;
  });
}

const SWITCHES = 12;
export function switches(fresh, all) {
  const body = document.getElementById("switches");
  if (all) body.replaceChildren();
  for (const one of fresh) {
    const ended = one.pause_ms || one.drain_ms;
    const cells = [
      one.n, one.from ?? "–", one.to, ms(one.switch_ms), ended ? `${ms(ended)}${one.pause_ms ? ", preempted" : ""}` : "–",
      one.bytes_out ? `${bytes(one.bytes_out)}, ${ms(one.out_seconds * 1e3)}` : "–",
      one.bytes_in ? `${bytes(one.bytes_in)}, ${ms(one.in_seconds * 1e3)}` : "–",
      ms(one.map_ms + one.prepare_ms + one.unmap_ms || null), ms(one.phases.first_launch_ms ?? one.phases.all_resident_ms),
    ];
    const kinds = ["figure", "name", "name", "figure", "figure", "figure", "figure", "figure", "figure"];
    body.prepend(make("tr", {}, ...cells.map((text, at) => make("td", { class: kinds[at] }, String(text)))));
  }
  while (body.childElementCount > SWITCHES) body.lastElementChild.remove();
  document.getElementById("switches-none").hidden = body.childElementCount > 0;
}

const TOOK = (entry) => (entry.took_ms ? ` after ${ms(entry.took_ms)}` : "");
const HAPPENED = {
  joined: () => "joined",
  departed: () => "left",
  refused: (entry) => `was refused ${bytes(entry.bytes ?? 0)}`,
  suspended: () => "was suspended",
  unsuspended: () => "was resumed",
  unmap_timed_out: () => "did not unmap memory in time; its work was put back",
  granted: (entry) => `got the GPU${TOOK(entry)}`,
  drained: (entry) => `gave the GPU back${TOOK(entry)}`,
  preempted: (entry) => `was taken off the GPU${TOOK(entry)}`,
  resumed: () => "has its work back",
  descheduled: () => "makes way for an urgent program",
};
const TURNS = new Set(["granted", "drained", "preempted", "resumed", "descheduled"]);
const LOGGED = 150;

/** The log of events, the newest first. */
export class Log {
  constructor() {
    this.entries = [];
    this.list = document.getElementById("log");
    this.turns = document.getElementById("turns");
    this.turns.addEventListener("change", () => this.draw(this.entries, true));
  }

  see(fresh, all, started) {
    this.started = started;
    fresh.sort((a, b) => a.n - b.n);
    this.entries = all ? fresh : this.entries.concat(fresh);
    // Of either kind as many as can be shown.
    const kept = (is_turn) => this.entries.filter((entry) => TURNS.has(entry.what) === is_turn).slice(-LOGGED);
    if (this.entries.length > 2 * LOGGED) this.entries = [...kept(false), ...kept(true)].sort((a, b) => a.n - b.n);
    this.draw(fresh, all);
  }

  draw(fresh, all) {
    const wanted = (all ? this.entries : fresh).filter((entry) => this.turns.checked || !TURNS.has(entry.what)).slice(-LOGGED);
    const lines = wanted.reverse().map((entry) => {
      const at = new Date(this.started + entry.ms);
      const time = make("time", { datetime: at.toISOString() }, at.toLocaleTimeString());
      return make("li", { "data-what": entry.what }, time, make("b", {}, entry.tenant ?? "the GPU"), ` ${(HAPPENED[entry.what] ?? (() => entry.what))(entry)}`);
    });
    if (all) this.list.replaceChildren(...lines);
    else if (lines.length) this.list.prepend(...lines);
    while (this.list.childElementCount > LOGGED) this.list.lastElementChild.remove();
    document.getElementById("log-none").hidden = this.list.childElementCount > 0;
  }
}
