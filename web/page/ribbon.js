// The last minute as a picture: the GPU's holders, and how each program stood. A canvas, so that it costs the same however often
// programs change; the table says the same in words.

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const CODES = new Uint8Array(128);
for (let at = 0; at < ALPHABET.length; at++) CODES[ALPHABET.charCodeAt(at)] = at;
const COLUMNS = 300;
const IDLE = 1;
const STEPS = 7;
/** How programs can stand that do not run, by their number in a code. */
const RESTS = ["", "", "--waiting", "--arriving", "--preempted", "--preempted", "--suspended"];
const COLOURS = 8;
/** Two for each colour: the second one's is striped. */
const MOST_LANES = 2 * COLOURS;

export class Ribbon {
  constructor(canvas) {
    this.canvas = canvas;
    this.lanes = new Map();
    this.end = 0;
    this.colours = new Map();
    this.said = 0;
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Columns that are new, or all. */
  see(news, all) {
    if (all) this.lanes.clear();
    const more = all ? COLUMNS : Math.min(COLUMNS, news.count);
    for (const [id, lane] of this.lanes) {
      lane.codes.copyWithin(0, more);
      if (!news.of[id]) lane.codes.fill(IDLE, COLUMNS - more);
    }
    for (const [id, [name, text]] of Object.entries(news.of)) {
      let lane = this.lanes.get(id);
      if (!lane) this.lanes.set(id, (lane = { codes: new Uint8Array(COLUMNS) }));
      lane.name = name;
      const from = COLUMNS - text.length;
      for (let at = 0; at < text.length; at++) lane.codes[from + at] = CODES[text.charCodeAt(at) & 127];
    }
    for (const [id, lane] of this.lanes) {
      lane.ran = lane.did = 0;
      for (const code of lane.codes) {
        lane.ran += code >> 3;
        lane.did += code > IDLE ? 1 : 0;
      }
      if (!lane.did) {
        this.lanes.delete(id);
      }
    }
    this.end = news.end;
    this.draw();
  }

  /** A program keeps its colour while its lane is shown, and no other has it. */
  paint(shown) {
    const ids = new Set(shown.map(([id]) => id));
    for (const id of this.colours.keys()) if (!ids.has(id)) this.colours.delete(id);
    for (const id of ids) {
      if (this.colours.has(id)) continue;
      const taken = new Set(this.colours.values());
      this.colours.set(id, [...Array(MOST_LANES).keys()].find((colour) => !taken.has(colour)));
    }
  }

  /** The colour of a program. */
  colour(id, ink, paint) {
    const number = this.colours.get(id);
    const colour = ink(`--c${number % COLOURS}`);
    return number < COLOURS ? colour : striped(colour, ink("--card"), paint);
  }

  draw() {
    const { canvas } = this;
    const width = canvas.parentElement.clientWidth - 32;
    if (width <= 0) return;
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(name).trim();
    const busiest = [...this.lanes].sort(([a, x], [b, y]) => y.ran - x.ran || y.did - x.did || a - b).slice(0, MOST_LANES);
    // In an order that stays, so that lanes do not jump.
    const shown = busiest.sort(([a], [b]) => a - b);
    this.paint(shown);
    const [left, top, tall, gap, lane] = [width < 600 ? 84 : 170, 4, 30, 8, 18];
    const height = top + tall + gap + shown.length * (lane + 4) + 20;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    paint.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    paint.textBaseline = "middle";
    const step = (width - left) / COLUMNS;
    const edge = (at) => left + at * step;
    const label = (text, y, colour) => {
      paint.fillStyle = colour;
      paint.fillText(cut(paint, text, left - 22), 14, y);
    };

    paint.fillStyle = ink("--faint");
    paint.fillRect(left, top, width - left, tall);
    label("GPU", top + tall / 2, ink("--ink"));
    const ids = new Set(shown.map(([id]) => id));
    const others = [...this.lanes].filter(([id]) => !ids.has(id));
    const colours = new Map(shown.map(([id]) => [id, this.colour(id, ink, paint)]));
    const stacked = [...shown.map(([id, { codes }]) => [colours.get(id), codes]), ...others.map(([, { codes }]) => [ink("--suspended"), codes])];
    for (let at = 0; at < COLUMNS; at++) {
      let sum = 0;
      for (const [, codes] of stacked) sum += codes[at] >> 3;
      let bottom = top + tall;
      const full = tall / Math.max(STEPS, sum);
      for (const [colour, codes] of stacked) {
        const high = (codes[at] >> 3) * full;
        if (!high) continue;
        paint.fillStyle = colour;
        paint.fillRect(edge(at), bottom - high, step + 0.5, high);
        bottom -= high;
      }
    }

    shown.forEach(([id, { name, codes }], row) => {
      const y = top + tall + gap + row * (lane + 4);
      const colour = colours.get(id);
      paint.fillStyle = ink("--faint");
      paint.fillRect(left, y, width - left, lane);
      for (let at = 0; at < COLUMNS; at++) {
        const [ran, rest] = [codes[at] >> 3, RESTS[codes[at] & 7]];
        if (rest) {
          paint.fillStyle = ink(rest);
          paint.fillRect(edge(at), y + lane - 5, step + 0.5, 5);
        }
        if (ran) {
          const high = ((lane - (rest ? 6 : 0)) * ran) / STEPS;
          paint.fillStyle = colour;
          paint.fillRect(edge(at), y + lane - (rest ? 6 : 0) - high, step + 0.5, high);
        }
      }
      paint.fillStyle = colour;
      paint.fillRect(0, y + 4, 9, lane - 8);
      label(name, y + lane / 2, ink("--ink"));
    });

    paint.fillStyle = ink("--quiet");
    const foot = height - 8;
    paint.fillText("60 s ago", left, foot);
    for (const [text, at] of [["40 s", 100], ["20 s", 200]]) paint.fillText(text, edge(at) - paint.measureText(text).width / 2, foot);
    paint.fillText("now", width - paint.measureText("now").width, foot);
    this.describe(shown, others.length);
  }

  /** Puts the picture into words, not so often that it disturbs the users of screen readers. */
  describe(shown, others) {
    document.getElementById("ribbon-more").textContent = others ? `and ${others} more, in grey` : "";
    if (Date.now() - this.said < 10_000) return;
    this.said = Date.now();
    const part = (lane) => `${Math.round((100 * lane.ran) / (COLUMNS * STEPS))} %`;
    const parts = shown.filter(([, lane]) => lane.ran).sort(([, a], [, b]) => b.ran - a.ran).map(([, lane]) => `${lane.name} ${part(lane)}`);
    this.canvas.setAttribute("aria-label", `In the last minute the GPU was used by ${parts.join(", ") || "nobody"}.`);
  }
}

/** A colour with stripes over it. */
function striped(colour, stripes, paint) {
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
  const brush = tile.getContext("2d");
  brush.fillStyle = colour;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = stripes;
  brush.lineWidth = 1.5;
  brush.beginPath();
  for (const at of [-3, 3]) {
    brush.moveTo(at, 6);
    brush.lineTo(at + 6, 0);
  }
  brush.stroke();
  return paint.createPattern(tile, "repeat");
}

function cut(paint, text, width) {
  if (paint.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && paint.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
