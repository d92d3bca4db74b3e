import { PAGE_LIMIT, POST_TIMEOUT_MS } from "../src/contract/limits.ts";
import { ABOUT } from "../src/http/document/introduction.ts";
import type { Guide } from "./guides.ts";
import { slug } from "./html.ts";
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
import { markdownPathOf, type Page } from "./pages.ts";
import { describePictures } from "./pictures.ts";
import { exampleRequest, toCurl } from "./requests.ts";

/** How long an endpoint may take to respond. */
const SECONDS = POST_TIMEOUT_MS / 1000;

/** Writes the docs as one Markdown document. */
export function renderMarkdown(document: Document, guides: Guide[]): string {
  const { info } = document.whole;
  const sections = guides.map(
    ({ title, text }) => `## ${title}\n\n${withOrigin(describePictures(text))}`,
  );
  const reference = document.groups.flatMap(({ name, description, entries }) => [
    `## ${name}`,
    description,
    ...entries.map((entry) => describeEntry(document, entry)),
  ]);
  return `${[
    `# ${info.title}, version ${info.version}`,
    `Base address: \`${ORIGIN}\`. As OpenAPI 3.1: ${ORIGIN}/openapi.json`,
    ABOUT,
    ...sections,
    ...reference,
    ...describeSchemas(document),
  ].join("\n\n")}\n`;
}

/** Writes each page as a Markdown document, by the path of the page. */
export function renderTwins(document: Document, guides: Guide[]): Map<string, string> {
  const twins = guides.map(({ path, title, text }): [string, string] => {
    const raised = describePictures(text).replace(/^#(?=#{2,3} )/gm, "");
    return [path, `# ${title}\n\n${withOrigin(raised)}\n`];
  });
  const groups = document.groups.map(({ name, description, entries }): [string, string] => {
    const described = entries.map((entry) => describeEntry(document, entry));
    const text = [`# ${name} reference`, description, ...described].join("\n\n");
    return [`${REFERENCE}/${slug(name)}`, `${withOrigin(text)}\n`];
  });
  const links = document.groups.map(
    ({ name }) => `- [${name}](${ORIGIN}${markdownPathOf(`${REFERENCE}/${slug(name)}`)})`,
  );
  const overview = ["# Reference", links.join("\n"), ...describeSchemas(document)].join("\n\n");
  return new Map([...twins, [REFERENCE, `${overview}\n`], ...groups]);
}

/** Lists the pages for search engines (https://www.sitemaps.org). */
export function renderSitemap(pages: Page[]): string {
  const urls = pages.map(({ path }) => `  <url><loc>${ORIGIN}${path}</loc></url>`);
  return `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
${urls.join("\n")}
</urlset>
`;
}

const REFERENCE = "/docs/reference";

/** Completes the links of a text with the base URL of this deployment. */
function withOrigin(text: string): string {
  return text.replaceAll("](/", `](${ORIGIN}/`);
}

/** Writes the entry page for programs, with links to the rest (llmstxt.org). */
export function renderLlms(document: Document, guides: Guide[]): string {
  const { info } = document.whole;
  const operations = document.groups.flatMap(({ entries }) =>
    entries.map(({ method, path, operation }) => `- \`${method} ${path}\`: ${operation.summary}`),
  );
  return `# ${info.title}

> ${info.summary} HTTP and JSON at ${ORIGIN}, version ${info.version}.

Everything needed to integrate is in one file: [the docs as Markdown](${ORIGIN}/docs.md).

- Authenticate each request under \`/v1\` with \`Authorization: Bearer <API key>\`; the key selects the workspace.
- Lists: \`?limit=${PAGE_LIMIT.min}..${PAGE_LIMIT.max}&cursor=<next_cursor>\`, newest first; continue while \`has_more\`.
- Errors: \`{"error":{"code","message","details"}}\`. Handle errors by \`code\`; wait for \`Retry-After\` on 429; quote \`X-Request-Id\`.
- Webhooks: verify \`X-Service-Signature: t=<unix>,v1=<hex>\` = HMAC-SHA256(secret, "{t}.{raw body}"), reject \`t\` more than 5 minutes off, deduplicate by \`id\`, respond with 2xx within ${SECONDS} seconds.

## Docs

- [Docs as Markdown](${ORIGIN}/docs.md): guides and reference
- [OpenAPI 3.1 document](${ORIGIN}/openapi.json): for client generators
- MCP server: ${ORIGIN}/mcp (Streamable HTTP, with the API key as bearer token): each operation is a tool; [how to add it](${ORIGIN}/docs/guides/mcp.md)

## Guides, each as Markdown

${guides.map(({ path, title }) => `- [${title}](${ORIGIN}${markdownPathOf(path)})`).join("\n")}

## Operations and events

${operations.join("\n")}
`;
}

/** Describes every schema that has fields or values, under a heading. */
function describeSchemas(document: Document): string[] {
  const schemas = Object.entries<Part>(document.whole.components.schemas)
    .filter(([, schema]) => schema.properties || schema.enum || schema.anyOf)
    .map(([name, schema]) => {
      const parts = [
        schema.description.trim(),
        describeValues(schema),
        describeFields(document, schema),
      ];
      return `### ${name}\n\n${parts.filter(Boolean).join("\n\n")}`;
    });
  return ["## Schemas", ...schemas];
}

function describeEntry(document: Document, entry: Entry): string {
  const { method, path, operation } = entry;
  const isEvent = method === "EVENT";
  const parameters = operation.parameters.map(
    (one: Part) =>
      `- \`${nameOfParameter(one)}\` (${[placeOf(one), boundsOf(one.schema)].filter(Boolean).join(", ")}): ${one.description}`,
  );
  const lines = [
    `### ${isEvent ? `Event ${path}` : `${method} ${path}`}`,
    `${operation.summary}. ${operation.description}`,
  ];
  if (parameters.length > 0) lines.push(parameters.join("\n"));
  const body = operation.requestBody?.content["application/json"];
  if (body) lines.push(`${isEvent ? "Payload" : "Body"}: \`${nameOf(body.schema)}\``);
  if (isEvent) return [...lines, fence("json", body.example)].join("\n\n");
  lines.push(`\`\`\`sh\n${toCurl(exampleRequest(ORIGIN, entry))}\n\`\`\``);
  for (const [status, part] of Object.entries<Part>(operation.responses)) {
    const { content, description } = document.follow(part);
    if (Number(status) >= 400) continue;
    const { schema, example } = content?.["application/json"] ?? {};
    lines.push(`Response ${status}: ${description}${schema ? ` \`${nameOf(schema)}\`` : ""}`);
    if (example) lines.push(fence("json", example));
  }
  const codes = Object.entries<Part>(operation.responses)
    .filter(([status]) => Number(status) >= 400)
    .flatMap(([status, part]) => {
      const examples = Object.values<Part>(
        document.follow(part).content["application/json"].examples,
      );
      return [...new Set(examples.map(({ value }) => `${status} \`${value.error.code}\``))];
    });
  return [...lines, `Errors: ${codes.join(", ")}.`].join("\n\n");
}

/**
 * Describes the values of an enumeration, unless its description explains them; those of an open one are also listed.
 */
function describeValues({
  description,
  anyOf: [{ enum: open = [] }] = [{}],
  enum: values = open,
}: Part): string {
  if (values.length === 0 || description.includes(`- \`${values[0]}\``)) return "";
  return `Values: ${values.map((value: string) => `\`${value}\``).join(", ")}.`;
}

/** Describes the fields of a schema; those of an object without a name are below it. */
function describeFields(document: Document, schema: Part, indent = ""): string {
  const required: string[] = schema.required ?? [];
  return Object.entries<Part>(schema.properties ?? {})
    .map(([name, field]) => {
      // The reference has a description of its own.
      const [referred, own] = field.allOf ?? [field, field];
      const reference = nameOf(referred) || nameOf(referred.items ?? {});
      const type = reference
        ? `${typeOf(document, referred)}, \`${reference}\``
        : typeOf(document, referred);
      const optional = required.includes(name) ? "" : ", optional";
      const words = own.description ? `: ${own.description}` : "";
      const below = describeFields(document, referred, `${indent}  `);
      return `${indent}- \`${name}\` (${type}${optional})${words}${below && `\n${below}`}`;
    })
    .join("\n");
}

function fence(language: string, value: unknown): string {
  return `\`\`\`${language}\n${JSON.stringify(value, null, 2)}\n\`\`\``;
}
