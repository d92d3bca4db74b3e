/**
 * Checks that the scripts of the pages use only what browsers have had for two and a half years, which Baseline calls
 * widely available (https://web.dev/baseline). The data is that of `web-features`; for CSS, biome has such a rule. What
 * is newer, or missing in a browser, needs a fallback, which a comment just before it explains: `// Not everywhere: …`.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { parseSync } from "oxc-parser";
import { features } from "web-features";
import { ROOT } from "./shared/checkout.ts";

/** How long all browsers must have had a feature, in months. */
const MONTHS = 30;
const FALLBACK = "// Not everywhere: ";

/** A feature of the web. `baseline_low_date` is when the last browser got it. */
interface Feature {
  status?: { by_compat_key?: Record<string, { baseline_low_date?: string }> };
}

const known = features as unknown as Record<string, Feature>;
const oldest = new Date();
oldest.setMonth(oldest.getMonth() - MONTHS);

/** The names of features that are old enough, and of those that are not, as a program writes them. */
const [old, young] = [new Set<string>(), new Set<string>()];
for (const { status } of Object.values(known))
  for (const [key, { baseline_low_date: since = "9999" }] of Object.entries(
    status?.by_compat_key ?? {},
  ))
    for (const name of namesOf(key)) (Date.parse(since) < oldest.getTime() ? old : young).add(name);

/** Names a feature by its key, such as `api.URL.parse_static`: `URL.parse`, or `.showPopover` of any object. */
function namesOf(key: string): string[] {
  const [, kind, parent = "", name = ""] =
    /^(api|javascript\.builtins(?:\.Intl)?|html\.elements)\.(\w+)(?:\.(\w+))?$/.exec(key) ?? [];
  if (kind === "html.elements") return [`<${parent} ${name}`];
  if (name.endsWith("_event")) return [`"${name.slice(0, -"_event".length)}"`];
  if (name.endsWith("_static")) return [`${parent}.${name.slice(0, -"_static".length)}`];
  if (name === "") return [parent];
  return [`${parent}.${name}`, `.${name}`, ...(parent === "Window" ? [name] : [])];
}

interface Node {
  type: string;
  start: number;
  [field: string]: unknown;
}

const part = (node: Node, field: string) => (node[field] ?? { type: "" }) as Node;
const nameOf = (node: Node) => (node.type === "" ? "" : String(node.name ?? ""));

/** Lists the names that a node uses. */
function usesOf(node: Node): string[] {
  switch (node.type) {
    case "NewExpression":
      return [nameOf(part(node, "callee"))];
    case "MemberExpression": {
      const [object, property] = [nameOf(part(node, "object")), nameOf(part(node, "property"))];
      if (node.computed) return [object];
      return [object, /^(globalThis|window)$/.test(object) ? property : `${object}.${property}`];
    }
    case "CallExpression": {
      const callee = part(node, "callee");
      const method = nameOf(part(callee, "property"));
      const value = (node.arguments as Node[])[0]?.value;
      if (/EventListener$/.test(method || nameOf(callee))) return [`"${value}"`];
      const isKnown = old.has(`${nameOf(part(callee, "object"))}.${method}`);
      return method === "" || isKnown ? [] : [`.${method}`];
    }
    case "JSXOpeningElement":
      return (node.attributes as Node[]).map(
        (one) => `<${nameOf(part(node, "name"))} ${nameOf(part(one, "name"))}`,
      );
    default:
      return [];
  }
}

/** Walks a syntax tree without its types, which are gone when the program runs. */
function* walk(node: Node): Generator<Node> {
  if (/^TS(?!AsExpression|NonNull|Satisfies)/.test(node.type)) return;
  yield node;
  for (const child of Object.values(node).flat())
    if (typeof (child as Node | null)?.type === "string") yield* walk(child as Node);
}

interface Source {
  file: string;
  text: string;
  nodes: Node[];
}

function parse(file: string): Source {
  const text = readFileSync(join(ROOT, file), "utf8");
  return { file, text, nodes: [...walk(parseSync(file, text).program as unknown as Node)] };
}

/** Lists what a file uses that is too new, with its line. `own` are the names of the project's own properties. */
function findYoung({ file, text, nodes }: Source, own: ReadonlySet<string>): string[] {
  const lines = text.split("\n");
  return nodes.flatMap((node) => {
    const [name] = usesOf(node).filter((use) => young.has(use) && !old.has(use) && !own.has(use));
    if (name === undefined) return [];
    const line = text.slice(0, node.start).split("\n").length;
    const isExplained = lines
      .slice(Math.max(0, line - 5), line)
      .join()
      .includes(FALLBACK);
    return isExplained ? [] : [`${file}:${line}: ${name} is not in all browsers of the last years`];
  });
}

const { metafile } = await build({
  absWorkingDir: ROOT,
  entryPoints: ["site/portal/main.tsx", "site/page/page.js", "site/page/theme.js"],
  bundle: true,
  write: false,
  metafile: true,
  format: "esm",
  outdir: "dist",
  jsx: "automatic",
  jsxImportSource: "preact",
});
const sources = Object.keys(metafile.inputs)
  .filter((file) => !file.includes("node_modules"))
  .map(parse);
// A method of the project's own objects may be called like one of the web.
const own = new Set(
  sources.flatMap(({ nodes }) =>
    nodes
      .filter(({ type }) => /^(Property|PropertyDefinition|MethodDefinition)$/.test(type))
      .map((node) => `.${nameOf(part(node, "key"))}`),
  ),
);
const found = sources.flatMap((source) => findYoung(source, own));
for (const line of found) process.stderr.write(`${line}\n`);
process.exitCode = found.length > 0 ? 1 : 0;
