import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";

const SRC = join(import.meta.dirname, "../../src");

/**
 * The folders of `src`, and the files beside them, with those that each may import. Each only imports what comes earlier
 * in this list, which begins with the lowest, so there are no cycles.
 */
const BELOW: Record<string, string> = {
  // Library code that knows nothing of the service. Any folder may import it.
  primitives: "",
  log: "",
  contract: "",
  encryption: "contract",
  db: "contract",
  workspaces: "db encryption contract log",
  "rate-limit": "workspaces db encryption contract",
  records: "workspaces db encryption contract log",
  events: "records workspaces db encryption contract",
  endpoints: "db encryption contract",
  delivery: "endpoints events workspaces db encryption contract log",
  subscriptions: "delivery endpoints events workspaces db encryption contract log",
  history: "subscriptions delivery endpoints events records workspaces db encryption contract log",
  replay: "history subscriptions delivery workspaces db contract",
  email: "history workspaces db contract log",
  recording: "delivery events records workspaces db encryption contract log",
  // An erasure, an export or a move of a workspace touches everything in it.
  lifecycle: "records delivery workspaces db encryption contract",
  moving: "lifecycle rate-limit delivery workspaces db contract log",
  "service-health": "delivery workspaces db contract log",
  platform:
    "service-health moving lifecycle recording email replay history subscriptions delivery endpoints events records rate-limit workspaces db encryption contract log",
  http: "service-health platform recording history subscriptions delivery endpoints events records rate-limit workspaces db encryption contract log",
  sweep:
    "service-health moving lifecycle records email history delivery workspaces db contract log",
  index: "http platform email delivery rate-limit sweep",
};

const sources = readdirSync(SRC, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts"))
  .map((file) => ({ file, text: readFileSync(join(SRC, file), "utf8") }));

/** Every import; `names` is what is between `import` and `from`. */
const imports = sources.flatMap(({ file: from, text }) => {
  const found = text.matchAll(/(?:(?:import|export)\s([^;"]*?)\sfrom|import)\s*\(?\s*"([^"]+)"/g);
  return [...found].map(([, names = "", specifier = ""]) => {
    const to = specifier.startsWith(".") ? relative(SRC, join(SRC, dirname(from), specifier)) : "";
    return { from, names, specifier, to };
  });
});
// The list of migrations lies outside.
const inside = imports.filter(({ to }) => to !== "" && !to.startsWith("../migrations/"));

/** Returns the folder of a file in `src`; of a file beside the folders, its name. */
function folderOf(file: string): string {
  const [folder = ""] = file.replace(/\.ts$/, "").split("/");
  return folder;
}

test("Each folder imports only the folders below it", () => {
  expect(inside.length).toBeGreaterThan(50);
  const forbidden = inside.filter(({ from, to }) => {
    const [here, there] = [folderOf(from), folderOf(to)];
    return here !== there && !["primitives", ...(BELOW[here] ?? "").split(" ")].includes(there);
  });
  expect(forbidden.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
});

test("No two folders import each other", () => {
  const names = Object.keys(BELOW);
  const upwards = Object.entries(BELOW).flatMap(([here, below]) =>
    below
      .split(" ")
      .filter((there) => there !== "" && names.indexOf(there) >= names.indexOf(here))
      .map((there) => `${here} -> ${there}`),
  );
  expect(upwards).toEqual([]);
});

test("no folder contains more than a third of the source", () => {
  const linesOf = (some: typeof sources) => some.flatMap(({ text }) => text.split("\n")).length;
  const folders = Map.groupBy(sources, ({ file }) => file.split("/")[0]);
  const large = [...folders].filter(([, files]) => linesOf(files) > linesOf(sources) / 3);
  expect(large.map(([folder]) => folder)).toEqual([]);
});

test("the ways in, which the Worker exports, do not reach each other", () => {
  const waysIn = inside.filter(({ from, names }) => from === "index.ts" && !/isEmail/.test(names));
  const reached = (file: string, seen = new Set<string>()): Set<string> => {
    for (const { from, to } of inside)
      if (from === file && !seen.has(to)) reached(to, seen.add(to));
    return seen;
  };
  expect(waysIn.length).toBeGreaterThan(5);
  const types = ["rate-limit/key-gate.ts", "rate-limit/address-gate.ts"];
  const crossing = waysIn.flatMap(({ to }) =>
    waysIn.filter((other) => !types.includes(other.to) && reached(to).has(other.to)),
  );
  expect(crossing).toEqual([]);
});

test("no file imports itself through others, types included", () => {
  const below = Map.groupBy(imports, ({ from }) => from);
  const done = new Set<string>();
  const findCircle = (file: string, path: string[]): string[] | null => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return null;
    for (const { to } of below.get(file) ?? []) {
      const circle = to === "" ? null : findCircle(to, [...path, file]);
      if (circle) return circle;
    }
    done.add(file);
    return null;
  };
  expect([...below.keys()].map((file) => findCircle(file, [])).find(Boolean)).toBeUndefined();
});

test("there is one zod, the one that describes the routes", () => {
  const zod = ["@hono/zod-openapi"];
  const specifiers = (some: typeof imports) => [...new Set(some.map((each) => each.specifier))];
  expect(specifiers(imports.filter(({ specifier }) => /zod/.test(specifier)))).toEqual(zod);
  const contract = imports.filter(({ from, to }) => folderOf(from) === "contract" && to === "");
  expect(specifiers(contract)).toEqual(zod);
});

test("only the HTTP API knows Hono, and only folders with tables know Drizzle", () => {
  const foldersOf = (some: typeof imports) => [...new Set(some.map(({ from }) => folderOf(from)))];
  const foldersThatImport = (name: string) =>
    foldersOf(imports.filter(({ specifier }) => specifier.startsWith(name)));
  expect(foldersThatImport("hono")).toEqual(["http"]);
  const routing = imports.filter(
    ({ specifier, names }) => specifier === "@hono/zod-openapi" && !/^(type )?\{ z \}$/.test(names),
  );
  expect(foldersOf(routing)).toEqual(["http"]);
  expect(foldersThatImport("drizzle-orm").sort()).toEqual([
    "db",
    "delivery",
    "email",
    "endpoints",
    "events",
    "history",
    "lifecycle",
    "moving",
    "recording",
    "records",
    "replay",
    "subscriptions",
    "workspaces",
  ]);
});

test("the policy, the signature, the targets and the window are pure", () => {
  const pure = [
    "delivery/policy.ts",
    "delivery/outcome.ts",
    "endpoints/signature.ts",
    "endpoints/target.ts",
    "rate-limit/window.ts",
  ];
  const reached = imports.filter(({ from }) => pure.includes(from));
  expect(new Set(reached.map(({ to, specifier }) => to || specifier))).toEqual(
    new Set([
      ...["primitives/bytes.ts", "contract/limits.ts", "ipaddr.js", "delivery/outcome.ts"],
      // Their types.
      ...["contract/enumerations.ts", "db/schema.ts"],
    ]),
  );
});
