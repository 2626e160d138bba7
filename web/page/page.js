// Listens to the coordinator and shows what it says. The token comes with the address, behind the #, which no server is sent.

import { Ribbon } from "/ribbon.js";
import { Log, Programs, bytes, make, memory, say, switches } from "/tables.js";

/** A coordinator that is silent for so long is asked anew. */
const SILENCE = 10_000;
/** A page that is hidden for so long listens no more. */
const UNSEEN = 60_000;

const get = (id) => document.getElementById(id);
const [said, main, ask] = ["said", "main", "ask"].map(get);
let ribbon, programs, log;
const gpus = get("gpus");
let listening = null;
let heard = 0;

/** The GPU that is shown, as the coordinator counts them. */
const gpu = () => `gpu=${gpus.value || 0}`;

function tell(text, bad = false) {
  say(said, text);
  said.classList.toggle("bad", bad);
}

function token() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem("token", decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token");
}

function authorized() {
  return { Authorization: `Bearer ${token() ?? ""}` };
}

function askForToken(text) {
  sessionStorage.removeItem("token");
  ask.hidden = false;
  main.hidden = true;
  tell(text, true);
  get("token").focus();
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", get("token").value.trim());
  get("token").value = "";
  ask.hidden = true;
  listen();
});

async function act(what, control) {
  control.disabled = true;
  tell(`${what.name}: asked to ${what.do === "class" ? `be ${what.class}` : what.do}`);
  try {
    const answer = await fetch(`/control?${gpu()}`, {
      method: "POST",
      headers: { ...authorized(), "Content-Type": "application/json" },
      body: JSON.stringify(what),
    });
    const text = answer.ok ? "done" : (await answer.text()).trim();
    tell(`${what.name}: ${text}`, !answer.ok);
  } catch (error) {
    tell(`${what.name}: ${error.message}`, true);
  }
  control.disabled = false;
  control.focus();
}

function tiles(top) {
  const rows = [
    ["has the GPU", top.on_gpu],
    ["programs", `${top.count} of ${top.max_tenants}`],
    ["switches", top.switches.toLocaleString()],
    ["copied in", bytes(top.bytes_in)],
    ["copied out", bytes(top.bytes_out)],
    ["preemptions", top.preemptions.toLocaleString()],
    ["refused", top.refused.toLocaleString()],
    ["have left", top.departed.toLocaleString()],
  ];
  const list = get("tiles");
  rows.forEach(([name, value], at) => {
    const tile = list.children[at] ?? list.appendChild(make("div", {}, make("dt", {}, name), make("dd")));
    say(tile.lastElementChild, value);
    if (tile.title !== value) tile.title = value;
  });
}

function show(message) {
  if (message.error) return tell(message.error, true);
  const { top, all } = message;
  main.hidden = false;
  ribbon ??= new Ribbon(get("ribbon"));
  programs ??= new Programs(act);
  log ??= new Log();
  if (all) {
    say(get("foot"), `Baton ${top.version}. The same figures: baton status --json.`);
    document.title = `${top.gpu.name} – Baton`;
    tell("connected");
  }
  const ending = top.ending ? " – ends after the last program, and takes no new ones" : "";
  say(get("gpu"), `${top.gpu.name}, ${bytes(top.gpu.memory_bytes)}, ${top.gpu.uuid}${ending}`);
  tiles(top);
  ribbon.see(message.lanes, all);
  programs.see(message.tenants, message.gone, all, top.control);
  memory(top);
  switches(message.switches, all);
  log.see(message.log, all, top.started_unix_ms);
  const { count, names } = top.newcomers;
  say(get("newcomers"), count ? `${count} wait to join: ${names.join(", ")}${count > names.length ? " …" : ""}` : "");
}

/** Offers the coordinator's other GPUs, if it has any. */
async function choose() {
  const answer = await fetch("/gpus.json", { headers: authorized(), cache: "no-store" }).catch(() => null);
  if (!answer?.ok) return;
  const chosen = gpus.value || "0";
  const all = await answer.json();
  const name = (one) => (one ? `${one.name} – ${one.uuid.slice(0, 12)}` : "no answer");
  gpus.replaceChildren(...all.map((one, at) => make("option", { value: at }, `GPU ${at}: ${name(one)}`)));
  gpus.value = chosen;
  gpus.parentElement.hidden = all.length < 2;
}

gpus.addEventListener("change", () => listen());

async function listen() {
  listening?.abort();
  const mine = (listening = new AbortController());
  for (let pause = 500; !mine.signal.aborted; pause = Math.min(pause * 2, 8000)) {
    // Of this connection alone: a stream that ends late says nothing about the next.
    const one = new AbortController();
    const end = () => one.abort();
    mine.signal.addEventListener("abort", end);
    const watch = setInterval(() => Date.now() - heard > SILENCE && one.abort(), 1000);
    heard = Date.now();
    try {
      const answer = await fetch(`/events?${gpu()}`, { headers: authorized(), cache: "no-store", signal: one.signal });
      if (answer.status === 401) return askForToken(sessionStorage.getItem("token") ? "this token is not the one" : "");
      if (!answer.ok) throw new Error((await answer.text()).trim());
      pause = 500;
      choose();
      await read(answer.body);
      throw new Error("the coordinator ended the connection");
    } catch (error) {
      if (!mine.signal.aborted) tell(`not connected: ${one.signal.aborted ? "nothing was heard for a while" : error.message}`, true);
    } finally {
      clearInterval(watch);
      mine.signal.removeEventListener("abort", end);
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

/** Server-sent events: `data: …` and an empty line. */
async function read(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard = Date.now();
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) show(JSON.parse(part.slice(6)));
  }
}

let unseen = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(unseen);
  if (document.hidden) {
    unseen = setTimeout(() => {
      listening?.abort();
      listening = null;
    }, UNSEEN);
  } else if (!listening && ask.hidden) listen();
});
window.addEventListener("hashchange", () => token() && listen());

listen();
