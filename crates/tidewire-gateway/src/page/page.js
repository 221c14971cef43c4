// Shows the description of the services, and lets one try their methods. What a description says is text, and never markup.
"use strict";

const byId = (id) => document.getElementById(id);
const make = (name, text = "", parts = []) => {
  const element = document.createElement(name);
  element.textContent = text;
  element.append(...parts);
  return element;
};
const headers = () => {
  const token = byId("token").value;
  return token ? { authorization: `Bearer ${token}` } : {};
};

async function load() {
  const place = byId("services");
  const answer = await fetch("/openapi.json", { headers: headers() });
  const api = await answer.json();
  if (!answer.ok) {
    const problem = make("p", api.detail);
    problem.className = "problem";
    place.replaceChildren(problem);
    return;
  }
  byId("title").textContent = api.info.title;
  const sections = api.tags.map((tag) => section(api, tag)).filter(Boolean);
  place.replaceChildren(...(sections.length ? sections : [make("p", "No public services now.")]));
}

function section(api, tag) {
  const own = Object.entries(api.paths).filter(([name, path]) => !name.includes("{") && path.post.tags[0] === tag.name);
  if (!own.length) return null;
  return make("section", "", [make("h2", tag.name), make("p", tag.description), ...own.map(([path, { post }]) => method(path, post))]);
}

function method(path, post) {
  const [content] = Object.values(post.requestBody.content);
  const schema = content.schema.anyOf?.[0] ?? content.schema;
  const files = Object.entries(schema.properties ?? {}).filter(isFile).map(([name]) => fileInput(name));
  const answers = (post.responses["200"] ?? post.responses["202"]).content;
  const isStream = "text/event-stream" in answers;
  const result = isStream ? answers["text/event-stream"]["x-item-schema"] : answers["application/json"].schema;
  const body = make("textarea");
  body.value = JSON.stringify(example(schema), null, 2);
  body.setAttribute("aria-label", `arguments of ${post.operationId}`);
  const shown = make("pre");
  const button = make("button", path.startsWith("/commands/") ? "Start" : "Call");
  button.type = "button";
  button.addEventListener("click", () => call(path, body.value, files, shown));
  return make("details", "", [
    make("summary", "", [make("code", post.operationId), ` ${post.summary || ""}${isStream ? " (stream)" : ""}`]),
    make("h3", "Arguments"), make("pre", JSON.stringify(schema.properties ?? {}, null, 2)),
    make("h3", isStream ? "Items" : "Result"), make("pre", JSON.stringify(result, null, 2)),
    body, ...files, button, shown,
  ]);
}

const isFile = ([, schema]) => schema.format === "binary";

function fileInput(name) {
  const input = Object.assign(make("input"), { type: "file", name });
  input.setAttribute("aria-label", name);
  return input;
}

/** The arguments as a form; the files are last. */
function form(text, files) {
  const data = new FormData();
  for (const [name, value] of Object.entries(JSON.parse(text))) data.append(name, typeof value === "string" ? value : JSON.stringify(value));
  for (const input of files) if (input.files[0]) data.append(input.name, input.files[0]);
  return data;
}

function example(schema) {
  const entries = Object.entries(schema.properties ?? {}).filter((one) => (schema.required ?? []).includes(one[0]) && !isFile(one));
  return Object.fromEntries(entries.map(([name, one]) => [name, { string: "", integer: 0, number: 0, boolean: false, array: [], object: {} }[one.type] ?? null]));
}

async function call(path, text, files, shown) {
  shown.textContent = "";
  try {
    const body = files.length ? form(text, files) : text;
    const answer = await fetch(path, { method: "POST", headers: { ...headers(), ...(typeof body === "string" && { "content-type": "application/json" }) }, body });
    shown.className = answer.ok ? "" : "problem";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) shown.append(part.value);
  } catch (wrong) {
    shown.textContent = String(wrong);
  }
}

byId("load").addEventListener("click", load);
load();
