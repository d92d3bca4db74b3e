/**
 * Plants faults in a copy of the project, one at a time, and reports the first test that notices each: faults of
 * `test/faults`, or random mutations.
 *
 *     npm run faults -- --in delivery
 *     npm run faults -- --mutate recording/automation-changes.ts --limit 20 --seed 3
 */
import { spawnSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "@hono/zod-openapi";
import { createVitest, type TestModule, type TestSpecification } from "vitest/node";
import type { Fault } from "../test/faults/fault.ts";
import { FAULTS } from "../test/faults/faults.ts";
import { findPlace, type Place } from "../test/faults/place.ts";
import { mutationsOf } from "./mutations.ts";
import { Chance } from "./shared/chance.ts";
import { ROOT, WRANGLER_ENV } from "./shared/checkout.ts";
import { fail, parseArguments, parseCount } from "./shared/command.ts";
import { print } from "./shared/terminal.ts";
import { parseJson } from "./shared/wrangler.ts";

const USAGE = `npm run faults -- [--mutate PATH]... [--in PREFIX]... [--from N] [--limit N] [--seed N] [--near | --all]

Plants faults in a copy of the project, one at a time, and shows which test is the first to notice each.
Exits with 1 if no test notices one of them, or if a test that notices one also fails without it.

  --in PREFIX    the faults of test/faults in these files, relative to src, such as http/ or db/page
  --mutate PATH  mutations of this folder or file of src instead: conditions, comparisons, bounds, missing
                 awaits and statements, SQL, and the order of a transaction
  --from N       begins with the Nth of them (default: 1)
  --limit N      stops after this number of faults
  --seed N       chooses other mutations (default: 1)
  --near         only runs the tests that mirror a fault's file
  --all          also runs all other tests; without it, mutations only meet those and the contract's
`;

/** A fault with its name. */
interface Planted extends Place {
  name: string;
  simulated: Fault["simulated"];
}

/** Who notices a fault: the test, and its file unless the contract's tests or the simulation have run it. */
interface Noticed {
  text: string;
  file?: TestSpecification | undefined;
}

const SRC = join(ROOT, "src");
const COPY = join(ROOT, "dist/faults");
/** How long the tests that mirror a file may take, how long all tests may, and how long the contract's may. */
const NEAR_MAX_MS = 120_000;
const ALL_MAX_MS = 1_200_000;
const CONTRACT_MAX_MS = 300_000;
const CLOSE_MAX_MS = 15_000;
/** How the report of a fault begins that makes the code run forever. */
const ENDLESS = "has no end within";

/** The report of vitest about the contract's tests. */
const Report = z.object({
  testResults: z.array(
    z.object({
      name: z.string(),
      assertionResults: z.array(z.object({ status: z.string(), fullName: z.string() })),
    }),
  ),
});

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  in: { type: "string", multiple: true, default: [""] },
  mutate: { type: "string", multiple: true, default: [] },
  from: { type: "string", default: "1" },
  limit: { type: "string", default: "1000000" },
  seed: { type: "string", default: "1" },
  near: { type: "boolean", default: false },
  all: { type: "boolean", default: false },
});
const skipsOthers = values.near || (values.mutate.length > 0 && !values.all);
const sources = readSources();
const chosen = values.mutate.length > 0 ? chooseMutations() : chooseFaults();
const before = parseCount("--from", values.from) - 1;
const faults = chosen.slice(before, before + parseCount("--limit", values.limit));

copyProject();
process.chdir(COPY);
Object.assign(process.env, WRANGLER_ENV, { PWD: COPY });
// Nothing is built in the copy yet.
delete process.env.ASSETS_ARE_BUILT;
delete process.env.WORKER_IS_BUILT;
const TESTS = readdirSync("test", { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".test.ts"))
  .map((path) => join("test", path));
/** The report of a fault that no test has noticed: other tests than those that ran may notice it. */
const UNNOTICED = skipsOthers
  ? `not noticed by the tests near it; try ${values.mutate.length > 0 ? "--all" : "without --near"}`
  : "NOT NOTICED";
const vitest = await createVitest("test", {
  watch: false,
  bail: 1,
  reporters: [{}],
  project: ["worker", "node"],
});
const unnoticed: Planted[] = [];
/** The test files that pass without a fault. */
const sound = new Set<string>();
let tried = 0;
for (const fault of faults) {
  const startedAt = performance.now();
  const noticed = await plant(fault);
  if (noticed) await checkWithoutFault(noticed);
  else unnoticed.push(fault);
  tried++;
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  print(`${before + tried}/${chosen.length} ${fault.name}`);
  print(`    ${noticed?.text ?? UNNOTICED} (${seconds} s)`);
  // Tests that were ended leave vitest unable to load any, which would look as if they noticed the faults that follow.
  if (noticed?.text.startsWith(ENDLESS)) break;
}
await Promise.race([vitest.close().catch(() => {}), sleep(CLOSE_MAX_MS)]);
print(`${tried} faults, ${unnoticed.length} not noticed`);
if (tried < faults.length) print(`Continue with --from ${before + tried + 1}.`);
for (const { name } of unnoticed) print(name);
process.exit(unnoticed.length > 0 || tried < faults.length ? 1 : 0);

/** Reads the files below `src` with their texts. */
function readSources(): Map<string, string> {
  const files = readdirSync(SRC, { recursive: true, encoding: "utf8" });
  const named = files.filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts")).toSorted();
  return new Map(named.map((file) => [file, readFileSync(join(SRC, file), "utf8")]));
}

/** Chooses faults of the table, each at its place in the current sources. */
function chooseFaults(): Planted[] {
  const placed = FAULTS.map((fault) => {
    const place = findPlace(fault, sources);
    if (typeof place === "number")
      throw new Error(`${place} places in ${fault.file}: ${fault.text}`);
    return { ...place, name: `${place.file}: ${fault.promise}`, simulated: fault.simulated };
  });
  return values.in.flatMap((prefix) => placed.filter(({ file }) => file.startsWith(prefix)));
}

/** Makes the mutations of the named files, in an order that the seed decides. */
function chooseMutations(): Planted[] {
  const paths = values.mutate.map((path) => path.replace(/^src\//, ""));
  const files = [...sources].filter(([file]) =>
    paths.some((path) => file === path || file.startsWith(`${path.replace(/\/$/, "")}/`)),
  );
  if (files.length === 0) throw new Error(`no file of src is in ${paths.join(", ")}`);
  const mutations = files.flatMap(([file, source]) =>
    mutationsOf(file, source).map(({ kind, start, end, replacement }): Planted => {
      const line = source.slice(0, start).split("\n").length;
      const text = source.slice(start, end);
      const name = `${file}:${line} ${kind}: ${oneLine(text)} → ${oneLine(replacement) || "nothing"}`;
      return { file, start, end, replacement, name, simulated: undefined };
    }),
  );
  const chance = new Chance(parseCount("--seed", values.seed));
  const shuffled = mutations.map((mutation) => ({ mutation, at: chance.number() }));
  return shuffled.toSorted((a, b) => a.at - b.at).map(({ mutation }) => mutation);
}

function oneLine(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > 90 ? `${line.slice(0, 90)}…` : line;
}

function copyProject(): void {
  rmSync(COPY, { recursive: true, force: true });
  mkdirSync(COPY, { recursive: true });
  for (const name of readdirSync(ROOT))
    if (!["node_modules", "dist", ".git", ".wrangler"].includes(name))
      cpSync(join(ROOT, name), join(COPY, name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(COPY, "node_modules"));
}

/**
 * Plants a fault, and finds who notices it first: the tests that mirror its file, all others, the contract's, or the
 * simulation.
 */
async function plant({
  file,
  start,
  end,
  replacement,
  simulated,
}: Planted): Promise<Noticed | null> {
  const path = join(COPY, "src", file);
  const source = sources.get(file) ?? "";
  writeFileSync(path, source.slice(0, start) + replacement + source.slice(end));
  vitest.invalidateFile(path);
  const passed = new Set<string>();
  try {
    const all = skipsOthers ? [] : [[]];
    for (const filters of [...mirrorsOf(file), ...all]) {
      const noticed = await firstFailure(filters, passed);
      if (noticed) return noticed;
    }
    const text =
      (values.near ? null : testContract()) ??
      (simulated && !skipsOthers ? simulate(simulated) : null);
    return text === null ? null : { text };
  } finally {
    writeFileSync(path, source);
    vitest.invalidateFile(path);
  }
}

/**
 * Runs a test file that has noticed a fault without any, once: a test that fails for another reason would seem to notice
 * every fault.
 *
 * @throws Error if it fails.
 */
async function checkWithoutFault({ file }: Noticed): Promise<void> {
  if (!file || sound.has(nameOf(file))) return;
  const failed = await failureInTime([file], NEAR_MAX_MS);
  if (failed) throw new Error(`${failed.text} fails without the fault, too`);
  sound.add(nameOf(file));
}

/**
 * Lists the tests with the name of a file, those that import it, and those of its folder. For code about workspaces,
 * the tests of moves are included.
 */
function mirrorsOf(file: string): string[][] {
  const folder = join("test/worker", dirname(file), "/");
  const namesakes = `/${basename(file, ".ts")}.test.ts`;
  const importers = TESTS.filter((path) => readFileSync(path, "utf8").includes(`/src/${file}"`));
  const folders = [
    ...(folder === "test/worker/" ? [] : [folder]),
    ...(file.startsWith("workspaces/") ? ["test/databases/"] : []),
  ];
  return [[namesakes], importers, ...folders.map((each) => [each])].filter(
    ({ length }) => length > 0,
  );
}

/**
 * Runs the test files that match and have not `passed` yet, and adds them to `passed`. Leaves out the test of
 * the table, which notices each fault because its text is missing.
 */
async function firstFailure(filters: string[], passed: Set<string>): Promise<Noticed | null> {
  const specifications = (await vitest.globTestSpecifications(filters)).filter(
    (each) => !passed.has(nameOf(each)) && !each.moduleId.endsWith("test/node/faults.test.ts"),
  );
  if (specifications.length === 0) return null;
  const timeoutMs = filters.length > 0 ? NEAR_MAX_MS : ALL_MAX_MS;
  const failure = await failureInTime(specifications, timeoutMs);
  if (failure) return failure;
  for (const each of specifications) passed.add(nameOf(each));
  return null;
}

/** Runs `failureOf` with a time limit, so that a fault that makes the code run forever is noticed. */
function failureInTime(
  specifications: TestSpecification[],
  timeoutMs: number,
): Promise<Noticed | null> {
  const endless = { text: `${ENDLESS} ${timeoutMs / 1000} s` };
  return Promise.race([failureOf(specifications), sleep(timeoutMs, endless, { ref: false })]);
}

/** Runs test files, and finds the first failure. */
async function failureOf(specifications: TestSpecification[]): Promise<Noticed | null> {
  // Failures of previous runs must not count.
  vitest.state.filesMap.clear();
  vitest.state.idMap.clear();
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(specifications);
  for (const testModule of testModules) {
    const file = specifications.find((each) => nameOf(each) === nameOf(testModule));
    for (const { fullName } of testModule.children.allTests("failed"))
      return { text: `${placeOf(testModule)} > ${fullName}`, file };
    if (testModule.state() === "failed")
      return { text: `${placeOf(testModule)}: does not load`, file };
  }
  return unhandledErrors.length > 0 ? { text: "an unhandled error" } : null;
}

/** Names a test file and the project that runs it. */
function nameOf({ project, moduleId }: TestModule | TestSpecification): string {
  return `${project.name} ${moduleId}`;
}

function placeOf({ project, relativeModuleId }: TestModule): string {
  return `${project.name}: ${relativeModuleId}`;
}

/** Runs the tests of the contract, which need the copy to be built, in a process of their own. */
function testContract(): string | null {
  const args = ["run", "--project", "contract", "--bail", "1", "--reporter", "json"];
  const { status, stdout } = spawnSync(join(ROOT, "node_modules/.bin/vitest"), args, {
    cwd: COPY,
    encoding: "utf8",
    maxBuffer: 2 ** 26,
    timeout: CONTRACT_MAX_MS,
  });
  if (status === 0) return null;
  const { data } = Report.safeParse(parseJson(stdout.slice(stdout.indexOf("{"))));
  for (const { name, assertionResults } of data?.testResults ?? []) {
    const failed = assertionResults.find((each) => each.status === "failed");
    if (failed) return `contract: ${relative(COPY, name)} > ${failed.fullName}`;
  }
  return `contract: ${status === null ? `has no end within ${CONTRACT_MAX_MS / 1000} s` : "does not start"}`;
}

function simulate({ violation, seed }: NonNullable<Fault["simulated"]>): string | null {
  const worlds = ["--seeds", "60", "--from", String(seed ?? 1), "--src", join(COPY, "src")];
  const { stdout } = spawnSync("node", [join(ROOT, "scripts/simulate.ts"), ...worlds], {
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  return new RegExp(`seed \\d+ failed: .*(${violation.source})`).exec(stdout)?.[0] ?? null;
}
