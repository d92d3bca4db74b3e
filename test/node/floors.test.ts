import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";

const SRC = join(import.meta.dirname, "../../src");

/** What each floor may import besides itself; doors are above all and never import each other. */
const BELOW: Record<string, string[]> = {
  log: [],
  contract: [],
  db: ["contract"],
  model: ["db", "contract"],
  gate: ["model", "db", "contract"],
  webhooks: ["model", "db", "contract", "log"],
  delivery: ["webhooks", "gate", "model", "db", "contract", "log"],
  recording: ["model", "db", "contract"],
  moving: ["delivery", "gate", "model", "db", "contract", "log"],
  // Generated ahead of time: nothing that the Worker runs imports it.
  document: ["doors/http", "webhooks", "model", "contract"],
  platform: [
    "moving",
    "recording",
    "gate",
    "webhooks",
    "delivery",
    "model",
    "db",
    "contract",
    "log",
  ],
  "doors/http": ["platform", "gate", "webhooks", "delivery", "model", "db", "contract", "log"],
  "doors/platform": ["platform", "db", "contract"],
  "doors/ingest": ["recording", "delivery", "model", "db", "contract", "log"],
  "doors/deliveries": ["gate", "webhooks", "delivery", "model", "db", "contract", "log"],
  "doors/sweep": ["moving", "delivery", "model", "db", "contract", "log"],
  index: [
    "doors/http",
    "doors/platform",
    "doors/ingest",
    "doors/deliveries",
    "doors/sweep",
    "delivery",
    "gate",
  ],
};

interface Import {
  from: string;
  /** What is between `import` and `from`. */
  names: string;
  to: string;
  specifier: string;
}

function importsOf(): Import[] {
  const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter(
    (file) => file.endsWith(".ts") && !file.endsWith(".d.ts"),
  );
  return files.flatMap((from) => {
    const text = readFileSync(join(SRC, from), "utf8");
    const found = text.matchAll(/(?:(?:import|export)\s([^;"]*?)\sfrom|import)\s*\(?\s*"([^"]+)"/g);
    return [...found].map(([, names = "", specifier = ""]) => ({
      from,
      names,
      specifier,
      to: specifier.startsWith(".") ? relative(SRC, join(SRC, dirname(from), specifier)) : "",
    }));
  });
}

/** The folder below `src/` of a file; each door is a floor of its own. */
function floorOf(file: string): string {
  const [folder = "", name = ""] = file.split("/");
  return (folder === "doors" ? `doors/${name}` : folder).replace(/\.ts$/, "");
}

const imports = importsOf();

test("imports only go down, and doors never import each other", () => {
  const inside = imports.filter(({ to }) => to !== "");
  expect(inside.length).toBeGreaterThan(50);
  const upward = inside.filter(({ from, to }) => {
    const [here, there] = [floorOf(from), floorOf(to)];
    return here !== there && !BELOW[here]?.includes(there);
  });
  expect(upward).toEqual([]);
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

test("there is one zod: the one that describes the routes", () => {
  const zods = imports.filter(({ specifier }) => /zod/.test(specifier));
  expect(new Set(zods.map(({ specifier }) => specifier))).toEqual(new Set(["@hono/zod-openapi"]));
});

test("the contract is pure: it imports zod and nothing else", () => {
  const foreign = imports.filter(({ from, to }) => floorOf(from) === "contract" && to === "");
  expect(new Set(foreign.map(({ specifier }) => specifier))).toEqual(
    new Set(["@hono/zod-openapi"]),
  );
});

test("only the HTTP door knows Hono, and only the model and the database know Drizzle", () => {
  const floorsThatImport = (name: string) => [
    ...new Set(
      imports
        .filter(({ specifier }) => specifier.startsWith(name))
        .map(({ from }) => floorOf(from)),
    ),
  ];
  expect(floorsThatImport("hono")).toEqual(["doors/http"]);
  const routing = imports.filter(
    ({ specifier, names }) => specifier === "@hono/zod-openapi" && !/^(type )?\{ z \}$/.test(names),
  );
  expect([...new Set(routing.map(({ from }) => floorOf(from)))].sort()).toEqual([
    "document",
    "doors/http",
  ]);
  expect(floorsThatImport("drizzle-orm").sort()).toEqual(["db", "model"]);
});

test("the policy, the signature, the targets and the window are pure", () => {
  const pure = [
    "delivery/policy.ts",
    "webhooks/outcome.ts",
    "webhooks/signature.ts",
    "webhooks/target.ts",
    "gate/window.ts",
  ];
  const reached = imports.filter(({ from }) => pure.includes(from));
  expect(new Set(reached.map(({ specifier }) => specifier))).toEqual(
    new Set([
      "../contract/bytes.ts",
      "../contract/limits.ts",
      "../contract/pace.ts",
      "../webhooks/outcome.ts",
      "ipaddr.js",
    ]),
  );
});
