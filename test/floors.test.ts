import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";

const SRC = join(import.meta.dirname, "../src");

/** What each floor may import, itself aside; doors stand above all and never import each other. */
const BELOW: Record<string, string[]> = {
  log: [],
  contract: [],
  db: ["contract"],
  model: ["db", "contract"],
  gate: ["model", "db", "contract"],
  delivery: ["gate", "model", "db", "contract", "log"],
  recording: ["model", "db", "contract"],
  // Made with the build: nothing that the Worker runs imports it.
  document: ["delivery", "contract"],
  http: ["gate", "delivery", "model", "db", "contract", "log"],
  platform: ["recording", "gate", "delivery", "model", "db", "contract", "log"],
  ingest: ["recording", "delivery", "model", "db", "contract", "log"],
  sweep: ["delivery", "model", "db", "contract", "log"],
  index: ["http", "platform", "ingest", "sweep", "delivery", "gate"],
};

interface Import {
  from: string;
  to: string;
  specifier: string;
}

function importsOf(): Import[] {
  const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter(
    (file) => file.endsWith(".ts") && !file.endsWith(".d.ts"),
  );
  return files.flatMap((from) => {
    const text = readFileSync(join(SRC, from), "utf8");
    return [...text.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)].map(([, specifier = ""]) => ({
      from,
      specifier,
      to: specifier.startsWith(".") ? relative(SRC, join(SRC, dirname(from), specifier)) : "",
    }));
  });
}

function floorOf(file: string): string {
  return (file.split("/")[0] ?? "").replace(/\.ts$/, "");
}

const imports = importsOf();

test("imports go down only, and doors never import each other", () => {
  const inside = imports.filter(({ to }) => to !== "");
  expect(inside.length).toBeGreaterThan(50);
  const upward = inside.filter(({ from, to }) => {
    const [here, there] = [floorOf(from), floorOf(to)];
    return here !== there && !BELOW[here]?.includes(there);
  });
  expect(upward).toEqual([]);
});

test("the contract is pure: it imports zod and nothing else", () => {
  const foreign = imports.filter(({ from, to }) => floorOf(from) === "contract" && to === "");
  expect(new Set(foreign.map(({ specifier }) => specifier))).toEqual(new Set(["zod"]));
});

test("only the HTTP door knows Hono, and only the model and the database know Drizzle", () => {
  const floorsThatImport = (name: string) => [
    ...new Set(
      imports
        .filter(({ specifier }) => specifier.startsWith(name))
        .map(({ from }) => floorOf(from)),
    ),
  ];
  expect(floorsThatImport("hono")).toEqual(["http"]);
  expect(floorsThatImport("drizzle-orm").sort()).toEqual(["db", "model"]);
});

test("the policy, the signature, the targets and the window are pure", () => {
  const pure = [
    "delivery/policy.ts",
    "delivery/signature.ts",
    "delivery/target.ts",
    "gate/window.ts",
  ];
  const reached = imports.filter(({ from }) => pure.includes(from));
  expect(new Set(reached.map(({ specifier }) => specifier))).toEqual(
    new Set(["../contract/limits.ts", "../contract/pace.ts", "../contract/bytes.ts", "ipaddr.js"]),
  );
});
