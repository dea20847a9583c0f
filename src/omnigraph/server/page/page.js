// The page of an OmniGraph server: reads one graph through the same routes, and with the same rights, as any client.
// The token stays in the input field: it is never stored, and never part of an address.
"use strict";

const SHOWN_ROWS = 1000;
const DRAWN_NODES = 60;
const ITERATIONS = 200;
const GRAVITY = 0.4;
const WIDTH = 760;
const HEIGHT = 420;
const COLOURS = ["#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#14b8a6", "#ec4899", "#84cc16"];
const UNOPENED = "Name a graph and open it.";
const EXAMPLE = "match { $a: TYPE }\nreturn { $a.* }\nlimit 25";

const element = (id) => document.getElementById(id);

async function request(path, signal, body) {
  const headers = { Accept: "application/json" };
  const token = element("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { headers, method: body === undefined ? "GET" : "POST", credentials: "omit", cache: "no-store", signal };
  if (body !== undefined) options.body = JSON.stringify(body);
  const response = await fetch(path, options);
  const answer = parse(await response.text(), response.status);
  if (!response.ok) {
    const hint = response.status === 401 ? "\nEnter a token above, then press Open." : "";
    const diagnostics = (answer.context && answer.context.diagnostics) || [];
    throw new Error(diagnostics.length ? diagnostics.map(describe).join("\n\n") : `${answer.error}${hint}`);
  }
  return answer;
}

// An integer of 64 bits has more digits than a number of JavaScript; browsers that tell its source get a BigInt.
function parse(text, status) {
  const exact = (key, value, context) =>
    typeof value === "number" && context && /^-?\d+$/.test(context.source) && !Number.isSafeInteger(value)
      ? BigInt(context.source)
      : value;
  try {
    return JSON.parse(text, exact);
  } catch {
    throw new Error(`The answer (status ${status}) is not JSON; it is incomplete, or that of a proxy.`);
  }
}

const toJson = (value) =>
  JSON.stringify(value, (key, item) => (typeof item === "bigint" ? JSON.rawJSON(String(item)) : item));

// A mistake in a query as the command line shows it: where it is, and what to write instead.
function describe({ code, message, hint, line, column, end_line: endLine, end_column: endColumn, source_line: text }) {
  const lines = [`${code}: ${message}`];
  if (line && text) {
    const length = endLine === line ? Math.max(endColumn - column, 1) : 1;
    const gutter = `${line} | `;
    lines.push(`${gutter}${text}`, " ".repeat(gutter.length + column - 1) + "^".repeat(length));
  }
  if (hint) lines.push(`hint: ${hint}`);
  return lines.join("\n");
}

const graphPath = (route) => `graphs/${encodeURIComponent(element("graph").value.trim())}${route}`;

function state() {
  const at = element("at").value.trim();
  return { branch: element("branch").value.trim() || "main", ...(at ? { at } : {}) };
}

// What was asked before is cancelled: its answer belongs to a query or graph that is no longer in its field.
const running = { open: new AbortController(), ask: new AbortController() };

async function report(kind, work) {
  for (const other of kind === "open" ? ["open", "ask"] : ["ask"]) running[other].abort();
  const { signal } = (running[kind] = new AbortController());
  element("error").hidden = true;
  try {
    await work(signal);
  } catch (problem) {
    if (signal.aborted) return;
    if (kind === "open") element("schema").textContent = UNOPENED;
    showAnswer([], [], []);
    element("status").textContent = "";
    element("error").textContent = problem.message;
    element("error").hidden = false;
  }
}

async function listGraphs(signal) {
  try {
    const { graphs } = await request("graphs", signal);
    element("graphs").replaceChildren(...graphs.map(({ graph_id }) => new Option(graph_id, graph_id)));
    if (!element("graph").value && graphs.length === 1) element("graph").value = graphs[0].graph_id;
  } catch {
    // Servers list their graphs only to those who may see the list; others type the name.
  }
}

async function openGraph(signal) {
  await listGraphs(signal);
  if (!element("graph").value.trim()) return;
  const { schema_source: source } = await request(graphPath(`/schema?branch=${encodeURIComponent(state().branch)}`), signal);
  element("schema").textContent = source;
  showAnswer([], [], []);
  const first = /^\s*node\s+(\w+)/m.exec(source);
  if (!element("source").value && first) element("source").value = EXAMPLE.replace("TYPE", first[1]);
  element("status").textContent = `Opened ${element("graph").value.trim()}.`;
}

async function runQuery(signal) {
  let params;
  try {
    params = JSON.parse(element("params").value || "{}");
  } catch (problem) {
    throw new Error(`The parameters are not JSON: ${problem.message}`);
  }
  element("status").textContent = "Running …";
  const query = element("source").value;
  const started = performance.now();
  const answer = await request(graphPath("/query"), signal, { query, params, ...state() });
  const took = Math.round(performance.now() - started);
  const more = answer.row_count > SHOWN_ROWS ? `, the first ${SHOWN_ROWS} are shown` : "";
  element("status").textContent = `${answer.row_count} row${answer.row_count === 1 ? "" : "s"}${more}; ${took} ms`;
  const drawing = draw(findGraph(query, answer.columns, answer.rows));
  showAnswer(answer.columns, answer.rows.slice(0, SHOWN_ROWS), drawing);
}

function showAnswer(columns, rows, drawing) {
  element("drawing").replaceChildren(...drawing);
  const head = document.createElement("thead");
  const body = document.createElement("tbody");
  head.append(rowOf(columns.map((name) => cell("th", name))));
  body.append(...rows.map((row) => rowOf(columns.map((name) => valueCell(row[name])))));
  element("rows").replaceChildren(head, body);
}

function rowOf(cells) {
  const row = document.createElement("tr");
  row.append(...cells);
  return row;
}

// Values are always text, never markup.
function cell(kind, text, style = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

function valueCell(value) {
  if (value === null) return cell("td", "null", "null");
  if (typeof value === "number" || typeof value === "bigint") return cell("td", String(value), "number");
  return cell("td", typeof value === "string" ? value : toJson(value));
}

// The nodes of a result are the variables that it returns, and its edges the walks between two of them.
function findGraph(query, columns, rows) {
  const columnOf = new Map();
  const remember = (variable, column) => {
    if (columns.includes(column) && !columnOf.has(variable)) columnOf.set(variable, column);
  };
  // The node itself is a better name of it than one of its properties.
  for (const [, variable, name] of query.matchAll(/\$(\w+)\s+as\s+(\w+)/g)) remember(variable, name);
  for (const column of columns) if (!column.includes(".")) remember(column, column);
  for (const [, variable, name] of query.matchAll(/\$(\w+)\.\w+\s+as\s+(\w+)/g)) remember(variable, name);
  for (const column of columns) remember(column.split(".")[0], column);
  const walks = [...query.matchAll(/\$(\w+)\s+(?:\$\w+:\s*)?<?([\w|]+)>?(?:\{[^}]*\})?\s+\$(\w+)/g)]
    .map(([, from, label, to]) => ({ from, label, to }))
    .filter(({ from, label, to }) => label !== "as" && columnOf.has(from) && columnOf.has(to));
  const types = findTypes(query, walks);
  const nodes = new Map();
  const edges = new Map();
  const node = (variable, row) => {
    const value = row[columnOf.get(variable)];
    if (value === null || value === undefined || typeof value === "object") return null;
    const type = types.get(variable);
    const key = toJson([type, value]);
    if (!nodes.has(key) && nodes.size < DRAWN_NODES) nodes.set(key, { label: String(value), group: type });
    return nodes.has(key) ? key : null;
  };
  for (const row of rows) {
    for (const { from, label, to } of walks) {
      const source = node(from, row);
      const target = node(to, row);
      if (source && target) edges.set(JSON.stringify([source, label, target]), { source, target, label });
    }
  }
  return { nodes, edges: [...edges.values()] };
}

// The type of a variable is in its binding, or follows from the edge that leads to it; two variables of one type may
// stand for the same node.
function findTypes(query, walks) {
  const types = new Map();
  const ends = new Map();
  for (const [, name, from, to] of element("schema").textContent.matchAll(/^\s*edge\s+(\w+)\s*:\s*(\w+)\s*->\s*(\w+)/gm)) {
    ends.set(name[0].toLowerCase() + name.slice(1), [from, to]);
  }
  for (const [, variable, type] of query.matchAll(/\$(\w+)\s*:\s*([A-Z]\w*)/g)) types.set(variable, type);
  for (const { from, label, to } of walks) {
    const [source, target] = ends.get(label.split("|")[0]) || [];
    if (!types.has(from)) types.set(from, source || from);
    if (!types.has(to)) types.set(to, target || to);
  }
  return types;
}

// A force-directed layout (Fruchterman and Reingold) that starts on a circle, so that equal results look equal.
function layout(nodes, edges) {
  const keys = [...nodes.keys()];
  const places = new Map(keys.map((key, index) => {
    const angle = (2 * Math.PI * index) / keys.length;
    return [key, { x: Math.cos(angle), y: Math.sin(angle) }];
  }));
  const ideal = 1.6 / Math.sqrt(keys.length);
  for (let step = 0; step < ITERATIONS; step += 1) {
    const moves = new Map(keys.map((key) => [key, { x: 0, y: 0 }]));
    const push = (one, other, strength) => {
      const dx = places.get(one).x - places.get(other).x;
      const dy = places.get(one).y - places.get(other).y;
      const distance = Math.max(Math.hypot(dx, dy), 0.01);
      const force = strength(distance) / distance;
      moves.get(one).x += dx * force;
      moves.get(one).y += dy * force;
    };
    for (const one of keys) {
      for (const other of keys) if (one !== other) push(one, other, (distance) => (ideal * ideal) / distance);
    }
    for (const { source, target } of edges) {
      push(source, target, (distance) => -(distance * distance) / ideal);
      push(target, source, (distance) => -(distance * distance) / ideal);
    }
    const most = 0.1 * (1 - step / ITERATIONS);
    for (const key of keys) {
      const move = moves.get(key);
      // A pull to the middle keeps parts together that no edge connects.
      move.x -= GRAVITY * places.get(key).x;
      move.y -= GRAVITY * places.get(key).y;
      const length = Math.max(Math.hypot(move.x, move.y), 0.001);
      places.get(key).x += (move.x / length) * Math.min(length, most);
      places.get(key).y += (move.y / length) * Math.min(length, most);
    }
  }
  return fit(places);
}

function fit(places) {
  const spots = [...places.values()];
  const range = (axis) => [Math.min(...spots.map((spot) => spot[axis])), Math.max(...spots.map((spot) => spot[axis]))];
  const [left, right] = range("x");
  const [top, bottom] = range("y");
  // Labels stand to the right of their nodes.
  const [margin, label] = [20, 150];
  for (const spot of spots) {
    spot.x = right > left ? margin + ((spot.x - left) / (right - left)) * (WIDTH - margin - label) : WIDTH / 2;
    spot.y = bottom > top ? margin + ((spot.y - top) / (bottom - top)) * (HEIGHT - 2 * margin) : HEIGHT / 2;
  }
  return places;
}

function draw({ nodes, edges }) {
  if (!edges.length) return [];
  const places = layout(nodes, edges);
  const groups = [...new Set([...nodes.values()].map(({ group }) => group))];
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  picture.append(labelled("title", {}, `${nodes.size} nodes and ${edges.length} edges of this result`));
  for (const { source, target, label } of edges) {
    const [from, to] = [places.get(source), places.get(target)];
    const line = shape("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y });
    line.append(labelled("title", {}, label));
    picture.append(line);
  }
  for (const [key, { label, group }] of nodes) {
    const { x, y } = places.get(key);
    const fill = COLOURS[groups.indexOf(group) % COLOURS.length];
    const short = label.length > 24 ? `${label.slice(0, 23)}…` : label;
    picture.append(shape("circle", { cx: x, cy: y, r: 7, fill }), labelled("text", { x: x + 10, y: y + 4 }, short));
  }
  return [picture];
}

function shape(kind, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

function labelled(kind, attributes, text) {
  const made = shape(kind, attributes);
  made.textContent = text;
  return made;
}

element("place").addEventListener("submit", (event) => {
  event.preventDefault();
  report("open", openGraph);
});
element("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  report("ask", runQuery);
});
element("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    report("ask", runQuery);
  }
});
report("open", async (signal) => {
  const { version } = await request("healthz", signal);
  element("version").textContent = version;
  await openGraph(signal);
});
