import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../..");
const SRC = join(ROOT, "src");

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
  endpoints: "workspaces db encryption contract",
  delivery: "endpoints events workspaces db encryption contract log",
  dispatch: "delivery endpoints events workspaces db encryption contract log",
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
    "service-health moving lifecycle records email replay history delivery workspaces db contract log",
  index: "http platform email dispatch rate-limit sweep",
};

/**
 * The folders and files outside `src` that may import more than `src` and, in `scripts`, `scripts/shared`. `test` has
 * support for commands of developers only.
 */
const WORKSHOP: Record<string, string> = {
  site: "src",
  "scripts/shared": "src",
  "scripts/assets.ts": "scripts/shared src site",
  "scripts/openapi": "scripts/shared src site",
  "scripts/restore": "scripts/shared src scripts/platform",
  "scripts/faults.ts": "scripts/shared src scripts/mutations.ts test",
  "scripts/simulate.ts": "scripts/shared src test",
  "scripts/screenshot.ts": "scripts/shared src test",
};

interface Import {
  from: string;
  /** What is between `import` and `from`. */
  names: string;
  specifier: string;
  /** The imported file, relative to `root`; empty if it is a package. */
  to: string;
}

/** Returns the sources below `root`, and every import in them. */
function read(root: string) {
  const sources = readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((file) => /\.tsx?$/.test(file) && !file.endsWith(".d.ts"))
    .map((file) => ({ file, text: readFileSync(join(root, file), "utf8") }));
  const imports = sources.flatMap(({ file: from, text }): Import[] => {
    const found = text.matchAll(/(?:(?:import|export)\s([^;"]*?)\sfrom|import)\s*\(?\s*"([^"]+)"/g);
    return [...found].map(([, names = "", specifier = ""]) => {
      const to = specifier.startsWith(".")
        ? relative(root, join(root, dirname(from), specifier))
        : "";
      return { from, names, specifier, to };
    });
  });
  return { sources, imports };
}

const { sources, imports } = read(SRC);
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

test("site imports src alone, and each command only what the commands share", () => {
  const outside = ["site", "scripts"].flatMap((folder) =>
    read(join(ROOT, folder)).imports.map(({ from, to }) => ({
      from: join(folder, from),
      to: to && join(folder, to),
    })),
  );
  expect(outside.length).toBeGreaterThan(200);
  /** Returns the part of the workshop that a file belongs to. */
  const partOf = (file: string) => {
    const [top = "", second = ""] = file.split("/");
    return top === "scripts" ? `scripts/${second}` : top;
  };
  const forbidden = outside.filter(({ from, to }) => {
    const [here, there] = [partOf(from), partOf(to)];
    const allowed = WORKSHOP[here] ?? "scripts/shared src";
    return to !== "" && here !== there && !allowed.split(" ").includes(there);
  });
  expect(forbidden.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
});

/** Returns a circle of files that import each other, if there is one. */
function findCircle(imported: Import[]): string[] | undefined {
  const below = Map.groupBy(imported, ({ from }) => from);
  const done = new Set<string>();
  const follow = (file: string, path: string[]): string[] | null => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return null;
    for (const { to } of below.get(file) ?? []) {
      const circle = to === "" ? null : follow(to, [...path, file]);
      if (circle) return circle;
    }
    done.add(file);
    return null;
  };
  for (const file of below.keys()) {
    const circle = follow(file, []);
    if (circle) return circle;
  }
  return undefined;
}

test.each(["src", "site", "scripts"])(
  "no file of %s imports itself through others, types included",
  (folder) => {
    expect(findCircle(read(join(ROOT, folder)).imports)).toBeUndefined();
  },
);

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
    "dispatch",
    "email",
    "endpoints",
    "events",
    "history",
    "lifecycle",
    "moving",
    "rate-limit",
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
    "endpoints/signature.ts",
    "endpoints/target.ts",
    "rate-limit/window.ts",
  ];
  const reached = imports.filter(({ from }) => pure.includes(from));
  expect(new Set(reached.map(({ to, specifier }) => to || specifier))).toEqual(
    new Set([
      ...["primitives/bytes.ts", "contract/limits.ts", "contract/time.ts", "ipaddr.js"],
      // Their types.
      ...["contract/enumerations.ts", "db/schema.ts"],
    ]),
  );
});
