import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildDocument } from "../src/document/document.ts";

/** Stands for the address of the API; the Worker puts its own in its place. */
export const ORIGIN = "https://origin.invalid";

const SCALAR = "node_modules/@scalar/api-reference/dist/browser";

/** Every file that is served, by its path: documents, and what the docs page loads under hashed names. */
export async function buildSite(root: string): Promise<Map<string, Buffer>> {
  const files = new Map<string, Buffer>();
  const read = (file: string) => readFileSync(join(root, file));
  const document = await buildDocument(ORIGIN);
  files.set("openapi.json", Buffer.from(JSON.stringify(document)));

  const scalar = readdirSync(join(root, SCALAR), { recursive: true, encoding: "utf8" })
    .filter((file) => file === "standalone.esm.js" || /^chunks\/.*\.js$/.test(file))
    .map((file): [string, Buffer] => [file, read(join(SCALAR, file))]);
  const folder = `docs/assets/scalar-${hash(...scalar.map(([, content]) => content))}`;
  for (const [file, content] of scalar) files.set(`${folder}/${file}`, content);

  const add = (name: string, content: Buffer) => {
    const path = `docs/assets/${name.replace(".", `-${hash(content)}.`)}`;
    files.set(path, content);
    return `/${path}`;
  };
  const names: Record<string, string> = {
    "%SCALAR%": `/${folder}/standalone.esm.js`,
    "%ICON%": add("icon.svg", read("site/docs/icon.svg")),
    "%STYLE%": add("page.css", read("site/docs/page.css")),
  };
  const fill = (text: string) =>
    Object.entries(names).reduce((filled, [name, path]) => filled.replaceAll(name, path), text);
  names["%SCRIPT%"] = add("page.js", Buffer.from(fill(read("site/docs/page.js").toString())));
  files.set("docs/index.html", Buffer.from(fill(read("site/docs/index.html").toString())));
  files.set("docs.md", Buffer.from("#\n"));
  files.set("llms.txt", Buffer.from("#\n"));
  return files;
}

function hash(...contents: Buffer[]): string {
  const sum = createHash("sha256");
  for (const content of contents) sum.update(content);
  return sum.digest("hex").slice(0, 12);
}
