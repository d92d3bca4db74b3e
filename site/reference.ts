import { codeBlock, escapeHtml } from "./highlight.ts";
import { renderTabs, slug, toHtml, toInline } from "./html.ts";
import {
  boundsOf,
  type Document,
  type Entry,
  nameOf,
  nameOfParameter,
  type Part,
  placeOf,
  typeOf,
} from "./openapi.ts";
import { ORIGIN } from "./origin.ts";
import type { Page, Section } from "./pages.ts";
import { exampleRequest, isInExample, LANGUAGES } from "./requests.ts";

/** Makes the pages of the reference: one about all operations, and one for the operations and events of each tag. */
export function referencePages(document: Document): Page[] {
  const group = "Reference";
  const pages = document.groups.map(({ name, description, entries }): Page => {
    const lead = `<p class="lead">${toInline(description)}</p>`;
    const rendered = entries.map((entry) => renderEntry(document, entry));
    return {
      path: `/docs/reference/${slug(name)}`,
      group,
      title: name,
      sections: [{ id: "", title: "", html: lead }, ...rendered.map(({ section }) => section)],
      body: lead + rendered.map(({ html }) => html).join(""),
    };
  });
  const index = document.groups.map(({ name, description, entries }) => {
    const path = `/docs/reference/${slug(name)}`;
    const rows = entries.map((entry) => renderRow(path, entry));
    return `<h2 id="${slug(name)}"><a href="${path}">${name}</a></h2><p class="lead">${toInline(description)}</p><ul class="operations">${rows.join("")}</ul>`;
  });
  const overview: Page = {
    path: "/docs/reference",
    group,
    title: "Every operation and event",
    sections: [{ id: "", title: "", html: ABOUT_REFERENCE }],
    body: ABOUT_REFERENCE + index.join(""),
  };
  return [overview, ...pages];
}

/** Renders a line of the index: the method and path of an operation, or the name of an event, with its title. */
function renderRow(page: string, { method, path, operation }: Entry): string {
  const name = escapeHtml(path).replaceAll("/", "/<wbr>");
  return `<li>${badgeOf(method)}<a href="${page}#${operation.operationId}"><code>${name}</code></a><span>${escapeHtml(operation.summary)}</span></li>`;
}

/** Renders the method as a small mark. */
function badgeOf(method: string): string {
  return `<span class="method ${method.toLowerCase()}">${method === "DELETE" ? "DEL" : method}</span>`;
}

const ABOUT_REFERENCE = `<p class="lead">Addresses are relative to this deployment. Times are ISO 8601 in UTC, ids are opaque, and unknown query parameters are ignored. <strong>Try it</strong> sends real requests to your workspace, with the API key from the top of the page. The key stays in this browser tab, and is forgotten when you close it.</p>`;

function renderEntry(document: Document, entry: Entry): { section: Section; html: string } {
  const { method, path, operation } = entry;
  const isEvent = method === "EVENT";
  const id = operation.operationId;
  const title = escapeHtml(operation.summary);
  const about = `
    <p class="route"><span class="method ${method.toLowerCase()}">${isEvent ? "Event" : method}</span> <code>${escapeHtml(path).replaceAll("/", "/<wbr>")}</code>${isEvent ? "" : ` <a class="jump" href="#${id}-try">Try it</a>`}</p>
    ${toHtml(operation.description ?? "")}`;
  const fields = `
    ${renderParameters(isEvent ? "Headers" : "Parameters", document, operation.parameters)}
    ${renderBody(document, operation, isEvent)}`;
  const html = `
<article class="operation" id="${id}" aria-labelledby="${id}-title">
  <div class="about">
    <h2 id="${id}-title"><a href="#${id}">${title}</a></h2>${about}
  </div>
  <div class="details">
    ${fields}
    ${isEvent ? "" : renderResponses(document, operation)}
  </div>
  <div class="sample">
    ${isEvent ? renderEventSample(operation) : renderSample(document, entry)}
  </div>
</article>`;
  const section = { id, title, html: about + fields, badge: badgeOf(method) };
  return { section, html };
}

function renderParameters(title: string, document: Document, parameters: Part[]): string {
  if (parameters.length === 0) return "";
  const items = parameters.map(
    (one) => `
<li>${fieldHead(nameOfParameter(one), typeOf(document, one.schema), [placeOf(one), boundsOf(one.schema)])}<div>${toInline(one.description)}</div></li>`,
  );
  return `<h3>${title}</h3><ul class="fields">${items.join("")}</ul>`;
}

function renderBody(document: Document, { requestBody }: Part, isEvent: boolean): string {
  if (!requestBody) return "";
  const { schema } = requestBody.content["application/json"];
  return `<h3>${isEvent ? "Payload" : "Body"}</h3>${renderFields(document, schema, true)}`;
}

function renderResponses(document: Document, { responses }: Part): string {
  const all = Object.entries<Part>(responses).map(([status, part]): [string, Part] => [
    status,
    document.follow(part),
  ]);
  const good = all.filter(([status]) => Number(status) < 400);
  const bad = all.filter(([status]) => Number(status) >= 400);
  const shown = good.map(
    ([status, { description, content }]) =>
      `<h3>Response <span class="status good">${status}</span></h3><p>${toInline(description)}</p>${content ? renderFields(document, content["application/json"].schema) : ""}`,
  );
  const errors = bad.map(
    ([status, { description }]) =>
      `<li><span class="status">${status}</span><div>${linkCodes(toHtml(description))}</div></li>`,
  );
  return `${shown.join("")}<details class="errors"><summary>Errors <span class="count">${errors.length} statuses</span></summary><ul>${errors.join("")}</ul></details>`;
}

/** Links each error code to its section of the guide. */
function linkCodes(html: string): string {
  return html.replace(
    /<code>(\w+)<\/code>:/g,
    (code, name: string) => `<a href="/docs/guides/errors#${slug(name)}">${code.slice(0, -1)}</a>:`,
  );
}

/**
 * Renders the fields of a schema; nested fields are folded.
 *
 * @param isRequest whether a client sends it, and must know which fields are required.
 */
function renderFields(document: Document, part: Part, isRequest = false): string {
  const schema = document.follow(part);
  const required: string[] = schema.required ?? [];
  const items = Object.entries<Part>(schema.properties ?? {}).map(([name, field]) => {
    const resolved = document.follow(field);
    const inner = innerOf(document, resolved);
    const text = toHtml(resolved.description ?? "");
    const folded = inner
      ? `<details><summary>Fields of <code>${escapeHtml(nameOf(inner) || name)}</code></summary>${renderFields(document, inner, isRequest)}</details>`
      : "";
    const values = document.follow(resolved.items ?? resolved);
    const listed = values !== resolved && values.enum ? toHtml(valuesOf(values)) : "";
    const requiredNote = isRequest ? "required" : "";
    const note = required.includes(name) ? requiredNote : "optional";
    const bounds = isRequest ? boundsOf(resolved) : "";
    return `<li>${fieldHead(name, typeOf(document, field), [note, bounds])}<div>${text}${listed}</div>${folded}</li>`;
  });
  return `<ul class="fields">${items.join("")}</ul>`;
}

/** Renders the values of an enumeration, without its description. */
function valuesOf({ description = "" }: Part): string {
  return description.slice(description.indexOf("- `"));
}

function fieldHead(name: string, type: string, notes: string[]): string {
  const shown = notes
    .filter((note) => note !== "")
    .map(
      (note) =>
        ` <span class="note">${escapeHtml(note).replace(/\brequired\b/, "<strong>required</strong>")}</span>`,
    );
  return `<p class="field"><code>${escapeHtml(name)}</code> <span class="type">${escapeHtml(type)}</span>${shown.join("")}</p>`;
}

/** Returns the part of a field that has fields itself: an object, or the items of a list. */
function innerOf(document: Document, schema: Part): Part | null {
  const reference = schema.type === "array" ? schema.items : schema;
  return document.follow(reference).properties ? reference : null;
}

function renderSample(document: Document, entry: Entry): string {
  const { operation } = entry;
  const [status, part] = Object.entries<Part>(operation.responses)[0] ?? ["", {}];
  const example = document.follow(part).content?.["application/json"].example;
  const answer = example
    ? codeBlock(JSON.stringify(example, null, 2), "json", `Response ${status}`)
    : `<p class="nothing">The response is <span class="status good">${status}</span>, without a body.</p>`;
  const request = exampleRequest(ORIGIN, entry);
  const programs = LANGUAGES.map(({ name, highlight, write }) => ({
    id: `${operation.operationId}-${slug(name)}`,
    name,
    content: codeBlock(write(request), highlight, "Request"),
  }));
  const tabs = renderTabs(`${operation.operationId}-tabs`, programs);
  return `<div class="request">${tabs}</div>${renderTry(document, entry)}${answer}`;
}

function renderEventSample({ parameters, requestBody }: Part): string {
  const headers = parameters
    .filter(({ required }: Part) => required)
    .map((one: Part) => `${one.name}: ${one.example}`);
  const { example } = requestBody.content["application/json"];
  return (
    codeBlock(["POST /automations HTTP/1.1", ...headers].join("\n"), "http", "Headers") +
    codeBlock(JSON.stringify(example, null, 2), "json", "Body")
  );
}

/** A note where `npm start` has switched rules off. The Worker fills in the variable (src/http/docs.ts). */
const LENIENT = `<p class="lenient" data-lenient="{{ALLOW_LOCAL_WEBHOOKS}}">On this machine, http, private addresses and unknown hosts are accepted. A deployed service rejects them, and so does <code>npm start -- --strict</code>.</p>`;

/** Renders a form that sends the request with the key at the top of the page. */
function renderTry(document: Document, { method, path, operation }: Entry): string {
  const inputs = operation.parameters.map((one: Part) => {
    const isFilled = one.in !== "path" && isInExample(one);
    const value = isFilled ? (one.example ?? "") : "";
    const placeholder = isFilled ? "" : ` placeholder="${escapeHtml(String(one.example))}"`;
    const hint = placeholder + (one.in === "path" ? " required" : "");
    return `<label><span>${escapeHtml(nameOfParameter(one))}</span><input name="${escapeHtml(one.name)}" data-in="${one.in}" value="${escapeHtml(String(value))}"${hint} autocomplete="off" spellcheck="false"></label>`;
  });
  const { schema, example } = operation.requestBody?.content["application/json"] ?? {};
  const takesUrl = schema && document.follow(schema).properties.url?.format === "uri";
  // The URL is removed, because the unchanged example would subscribe a host that is not the reader's.
  const filled = takesUrl ? { ...example, url: "https://…" } : example;
  const body = example
    ? `<label><span>Body</span><textarea name="body" rows="6" spellcheck="false">${escapeHtml(JSON.stringify(filled, null, 2))}</textarea></label>${takesUrl ? LENIENT : ""}`
    : "";
  return `<details class="try" id="${operation.operationId}-try"><summary>Try it</summary><form data-method="${method}" data-path="${escapeHtml(path)}">${inputs.join("")}${body}<button type="submit">Send request</button><div class="result" aria-live="polite"></div></form></details>`;
}
