import { readFileSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { CREATION } from "../src/http/routes/examples.ts";
import { slug } from "./html.ts";
import { ORIGIN } from "./origin.ts";
import { PARTS } from "./parts.ts";
import { type ExampleRequest, LANGUAGES, toCurl } from "./requests.ts";

/** A guide: a page of the docs, with its text in Markdown. */
export interface Guide {
  path: string;
  /** The group in the table of contents. */
  group: string;
  title: string;
  text: string;
}

/** The folder of the guides, in the repository. */
export const FOLDER = "site/guides";

/** Every guide of the folder, in reading order: its group and the name of its file, which begins with its title. */
export const GUIDES = [
  ["Start", "quickstart"],
  ["Start", "concepts"],
  ["Start", "sync"],
  ["Start", "polling"],
  ["Start", "client"],
  ["Start", "mcp"],
  ["Start", "local"],
  ["Requests", "authentication"],
  ["Requests", "pagination"],
  ["Requests", "rate-limits"],
  ["Requests", "errors"],
  ["Requests", "idempotency"],
  ["Webhooks", "webhooks"],
  ["Webhooks", "signatures"],
  ["Webhooks", "libraries"],
  ["Webhooks", "handlers"],
  ["Webhooks", "processing"],
  ["Webhooks", "statuses"],
  ["Webhooks", "headers"],
  ["Webhooks", "retries"],
  ["Webhooks", "failures"],
  ["Webhooks", "events"],
  ["Webhooks", "no-code"],
  ["Webhooks", "network"],
  ["Webhooks", "testing"],
  ["Webhooks", "portal"],
  ["Webhooks", "troubleshooting"],
  ["Production", "go-live"],
  ["Production", "limits"],
  ["Production", "personal-data"],
  ["Production", "support"],
  ["Changes", "versioning"],
] as const;

/** The client files shown in the docs: its library, then its programs and what they share. */
const CLIENT_SOURCES = [
  ...["client.ts", "api-error.ts", "webhooks.ts", "run.ts", "leads.ts", "receive.ts", "events.ts"],
  ...["copy.ts", "sync.ts"],
];

/** The files of `examples/client`; the docs offer each under `/docs/client/`. */
export const CLIENT_FILES = [
  ...CLIENT_SOURCES,
  ...["README.md", "package.json", "package-lock.json", "tsconfig.json"],
];

/** Every guide, in reading order, and the changelog. */
export function guides(root: string): Guide[] {
  const all = GUIDES.map(([group, name]): Guide => {
    const whole = readFileSync(join(root, FOLDER, `${name}.md`), "utf8");
    const [, title = "", text = ""] = /^# ([^\n]*)\n(.*)$/s.exec(whole) ?? [];
    return { path: pathOf(name), group, title, text: toSite(text, root) };
  });
  return [
    ...all,
    { group: "Changes", title: "Changelog", path: "/docs/changelog", text: changelog(root) },
  ];
}

/** Where `npm start` serves the API: the text of a guide names it in place of a deployment's own address. */
const LOCAL = "http://localhost:8787";

/** The phrases of the guides that depend on the deployment, each as the Worker fills it in (src/http/docs.ts). */
export const DEPLOYED = [
  "{{QUOTA_REQUESTS}} requests every {{QUOTA_WINDOW_SECONDS}} s",
  "{{QUOTA_REQUESTS}} in {{QUOTA_WINDOW_SECONDS}} s",
  "lasts {{QUOTA_WINDOW_SECONDS}} s",
  "{{AUTH_FAILURES}} times in {{AUTH_FAILURE_WINDOW_SECONDS}} s",
  "{{AUTH_FAILURES}} in {{AUTH_FAILURE_WINDOW_SECONDS}} s",
  "{{EVENTS_KEPT_DAYS}} days, at most the newest {{EVENTS_KEPT_MAX}}",
  "deleted after {{EVENTS_KEPT_DAYS}} days",
  "beyond the newest {{EVENTS_KEPT_MAX}}",
  "{{SUPPORT_EMAIL}}",
  "{{SUPPORT_URL}}",
];

/** A part that is written from the code (site/parts.ts), between comments with its name. */
const PART = /<!-- ([a-z-]+) -->\n.*?<!-- \/\1 -->/gs;

/** A list of links to files of examples, of which the page shows one at a time. */
const EXAMPLES = /(?:^- \[[^\]]*\]\(\.\.\/\.\.\/examples\/[^)]*\)\n?)+/gm;

/** Returns the text of a guide as it stands in the repository, with the parts that are written from the code. */
export function fillParts(text: string, root: string): string {
  const values = variablesOf(root);
  return text.replace(PART, (_, name: string) => {
    const part = partOf(name)
      .replaceAll(ORIGIN, LOCAL)
      .replaceAll("\u00a0", " ")
      .replace(/\{\{(\w+)\}\}/g, (_, variable: string) => values(variable))
      .replace(/\]\(\/docs\/guides\/([a-z-]+)/g, "]($1.md")
      .replace(/^#(?=##+ )/gm, "");
    return `<!-- ${name} -->\n\n${part}\n\n<!-- /${name} -->`;
  });
}

/** Converts the text of a guide from how it stands in the repository to how the site shows it. */
function toSite(text: string, root: string): string {
  const values = variablesOf(root);
  // In the docs as one text, the title of a guide has level 2.
  let shown = text
    .replace(/^##+ /gm, "#$&")
    .replace(PART, (_, name: string) => partOf(name))
    .replace(EXAMPLES, (list) => showFiles(list, root))
    .replace(/\]\(([^)\s]+)\)/g, (_, address: string) => `](${toAddress(address)})`);
  for (const [request, curl] of REQUESTS) shown = shown.replace(curl, () => inLanguages(request));
  for (const phrase of DEPLOYED) {
    const literal = phrase.replace(/\{\{(\w+)\}\}/g, (_, variable: string) => values(variable));
    shown = shown.replaceAll(literal, phrase);
  }
  return shown
    .replaceAll(LOCAL, ORIGIN)
    .replace(/```.*?```|(?<=\d) (?=(?:s|min|h|ms|KiB|MB|days)\b)/gs, (found) =>
      found === " " ? "\u00a0" : found,
    )
    .trim();
}

function partOf(name: string): string {
  const part = PARTS[name];
  if (part === undefined) throw new Error(`no part of the guides is called ${name}`);
  return part;
}

/** Converts a link of the repository to an address of the site. */
function toAddress(link: string): string {
  const [path = "", anchor = ""] = link.split("#");
  const at = anchor && `#${anchor}`;
  if (path === "../../openapi.json" && anchor) return `/docs/reference/${anchor.replace("/", "#")}`;
  if (path === "../../openapi.json") return "/openapi.json";
  if (path === "../../CHANGELOG.md") return "/docs/changelog";
  const file = basename(path);
  if (path.startsWith("../../examples/client/"))
    return CLIENT_SOURCES.includes(file)
      ? `/docs/guides/client#${slug(file)}`
      : `/docs/client/${file}`;
  return /^[a-z-]+\.md$/.test(path) ? pathOf(basename(path, ".md")) + at : link;
}

/** Returns the path of the page of a guide. */
function pathOf(name: string): string {
  return name === "quickstart" ? "/docs" : `/docs/guides/${name}`;
}

/** Returns the values that wrangler.toml gives to the variables of a deployment. */
export function variablesOf(root: string): (name: string) => string {
  const text = readFileSync(join(root, "wrangler.toml"), "utf8");
  return (name) => {
    const [, value] = new RegExp(`^${name} = "?([^"\\n]*)"?$`, "m").exec(text) ?? [];
    if (value === undefined) throw new Error(`wrangler.toml: no variable ${name}`);
    return /^[\d_]+$/.test(value) ? Number(value.replaceAll("_", "")).toLocaleString("en") : value;
  };
}

/** The requests of the guides that are shown in every language, with what a guide has in their place. */
export const REQUESTS = [
  { method: "GET", url: `${LOCAL}/v1/leads?limit=2` },
  { method: "POST", url: `${LOCAL}/v1/webhooks`, body: CREATION },
].map((request): [ExampleRequest, string] => [request, `\`\`\`sh\n${toCurl(request)}\n\`\`\``]);

/** The languages of files, by extension. */
const HIGHLIGHTED: Record<string, string> = {
  ".ts": "ts",
  ".py": "python",
  ".php": "php",
  ".go": "go",
  ".rb": "ruby",
  ".java": "java",
  ".cs": "csharp",
};

/** Shows the files that a list links to as alternatives. */
function showFiles(list: string, root: string): string {
  return [...list.matchAll(/\[([^\]]*)\]\(([^)]*)\)/g)]
    .map(([, name = "", link = ""]) => {
      const code = readFileSync(join(root, FOLDER, link), "utf8");
      return alternative(name, HIGHLIGHTED[extname(link)] ?? "", code);
    })
    .join("\n\n");
}

/** Returns the versions of CHANGELOG.md, each below its title. */
function changelog(root: string): string {
  const text = readFileSync(join(root, "CHANGELOG.md"), "utf8");
  return text
    .slice(text.indexOf("\n## "))
    .replace(/^### (.*)$/gm, "**$1**")
    .replace(/^## (.*)$/gm, (_, title: string) => `### ${title.replace(/[[\]]/g, "")}`)
    .trim();
}

/** Writes a request in each language. */
function inLanguages(request: ExampleRequest): string {
  return LANGUAGES.map(({ name, highlight, write }) =>
    alternative(name, highlight, write(request)),
  ).join("\n\n");
}

/** Writes code under a level-4 heading; the page shows one of these at a time (site/pages.ts). */
function alternative(name: string, language: string, code: string): string {
  return `#### ${name}\n\n\`\`\`${language}\n${code.trim()}\n\`\`\``;
}
