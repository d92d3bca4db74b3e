/**
 * Plants each fault of `test/faults` in a copy of the project, and says which test notices it first.
 *
 *     npm run faults -- --in delivery
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
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createVitest, type TestModule, type Vitest } from "vitest/node";
import type { Fault } from "../test/faults/fault.ts";
import { FAULTS } from "../test/faults/faults.ts";
import { ROOT } from "./shared/checkout.ts";
import { fail, parseArguments, parseCount } from "./shared/command.ts";
import { print } from "./shared/terminal.ts";

const USAGE = `npm run faults -- [--in PREFIX]... [--max N] [--near]

Plants each fault of test/faults in a copy of the project, and says which test notices it first.
Exits 1 if nobody notices one.

  --in PREFIX  only the faults of these files, relative to src, such as http/ or db/page
  --max N      stops after this number of faults
  --near       only runs the tests that mirror a fault's file
`;

const COPY = join(ROOT, "dist/faults");
/** How long the tests that mirror a file may take, and all tests. */
const NEAR_MAX_MS = 120_000;
const ALL_MAX_MS = 1_200_000;
const CLOSE_MAX_MS = 15_000;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  in: { type: "string", multiple: true, default: [""] },
  max: { type: "string", default: String(FAULTS.length) },
  near: { type: "boolean", default: false },
});
const named = values.in.flatMap((prefix) => FAULTS.filter(({ file }) => file.startsWith(prefix)));
const faults = named.slice(0, parseCount("--max", values.max));

copyProject();
process.chdir(COPY);
const TESTS = readdirSync("test", { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".test.ts"))
  .map((path) => join("test", path));
let vitest = await openVitest();
const unnoticed: Fault[] = [];
for (const [i, fault] of faults.entries()) {
  const startedAt = performance.now();
  const noticed = await plant(fault);
  if (!noticed) unnoticed.push(fault);
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  print(`${i + 1}/${faults.length} ${fault.file}: ${fault.promise}`);
  print(`    ${noticed ?? "NOBODY NOTICES"} (${seconds} s)`);
}
await vitest.close();
print(`${faults.length} faults, ${unnoticed.length} noticed by nobody`);
for (const { file, text, replacement } of unnoticed) print(`${file}: ${text} → ${replacement}`);
process.exit(unnoticed.length > 0 ? 1 : 0);

function copyProject(): void {
  rmSync(COPY, { recursive: true, force: true });
  mkdirSync(COPY, { recursive: true });
  for (const name of readdirSync(ROOT))
    if (!["node_modules", "dist", ".git", ".wrangler"].includes(name))
      cpSync(join(ROOT, name), join(COPY, name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(COPY, "node_modules"));
}

/** What notices a fault first: the tests that mirror its file, all others, or the simulation. */
async function plant(fault: Fault): Promise<string | null> {
  const path = join(COPY, "src", fault.file);
  const sound = readFileSync(path, "utf8");
  writeFileSync(
    path,
    sound.replace(fault.text, () => fault.replacement),
  );
  vitest.invalidateFile(path);
  const passed = new Set<string>();
  try {
    const all = values.near ? [] : [[]];
    for (const filters of [...mirrorsOf(fault.file), ...all]) {
      const noticed = await firstFailureInTime(filters, passed);
      if (noticed) return noticed;
    }
    return fault.simulated && !values.near ? simulate(fault.simulated) : null;
  } finally {
    writeFileSync(path, sound);
    vitest.invalidateFile(path);
  }
}

/**
 * The tests with a file's name, those that import it, those of its folder, and those of moves for what
 * is about workspaces.
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

function openVitest(): Promise<Vitest> {
  return createVitest("test", {
    watch: false,
    bail: 1,
    reporters: [{}],
    project: ["worker", "databases", "node"],
  });
}

/** Like `firstFailure`, but notices a fault that makes the code run without an end, too. */
async function firstFailureInTime(filters: string[], passed: Set<string>): Promise<string | null> {
  const patienceMs = filters.length > 0 ? NEAR_MAX_MS : ALL_MAX_MS;
  const endless = `has no end within ${patienceMs / 1000} s`;
  const timeout = sleep(patienceMs, endless, { ref: false });
  const noticed = await Promise.race([firstFailure(filters, passed), timeout]);
  if (noticed !== endless) return noticed;
  // The second call ends what the first one waits for.
  for (let i = 0; i < 2; i++) void vitest.cancelCurrentRun("keyboard-input").catch(() => {});
  await Promise.race([vitest.close().catch(() => {}), sleep(CLOSE_MAX_MS)]);
  vitest = await openVitest();
  return endless;
}

/**
 * Runs the test files that match and have not `passed` yet, and adds them to those; but not the test of
 * the table, which notices each fault because its text is gone.
 */
async function firstFailure(filters: string[], passed: Set<string>): Promise<string | null> {
  // Otherwise failures of the runs before count.
  vitest.state.filesMap.clear();
  vitest.state.idMap.clear();
  const specifications = (await vitest.globTestSpecifications(filters)).filter(
    ({ project, moduleId }) =>
      !passed.has(`${project.name} ${moduleId}`) && !moduleId.endsWith("test/node/faults.test.ts"),
  );
  if (specifications.length === 0) return null;
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(specifications);
  for (const testModule of testModules) {
    for (const { fullName } of testModule.children.allTests("failed"))
      return `${placeOf(testModule)} > ${fullName}`;
    if (testModule.state() === "failed") return `${placeOf(testModule)}: does not load`;
  }
  for (const { project, moduleId } of specifications) passed.add(`${project.name} ${moduleId}`);
  return unhandledErrors.length > 0 ? "an unhandled error" : null;
}

function placeOf({ project, relativeModuleId }: TestModule): string {
  return `${project.name}: ${relativeModuleId}`;
}

function simulate({ violation, seed }: NonNullable<Fault["simulated"]>): string | null {
  const worlds = ["--seeds", "60", "--from", String(seed ?? 1), "--src", join(COPY, "src")];
  const { stdout } = spawnSync("node", [join(ROOT, "scripts/simulate.ts"), ...worlds], {
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  return new RegExp(`seed \\d+ failed: .*(${violation.source})`).exec(stdout)?.[0] ?? null;
}
