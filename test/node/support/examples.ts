import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { until } from "../../support/until.ts";
import { childrenOf, startProgram } from "./process.ts";

/** The folder of the receivers in the documentation. */
export const EXAMPLES = join(ROOT, "examples/receivers");

/** Where Debian installs them. */
const JAVA_LIBRARIES = "/usr/share/java/*";

/** A running example receiver. */
export interface RunningExample {
  /** Its output, one line per processed event. */
  lines: string[];
  /** The process that accepts requests. */
  pid: number;
  /** Its own folder, used as home and for temporary files. */
  folder: string;
  stop(): Promise<void>;
}

/** An example receiver. */
export interface Example {
  file: string;
  /** A command that succeeds where the example can run; none if npm installs what it needs. */
  probe?: string[];
  /** Whether it may be missing in CI, too: Go, Ruby and Java would take minutes to install. */
  isOptional?: boolean;
  start(port: number, secret: string): Promise<RunningExample>;
}

/** Every receiver of `examples/receivers`. */
export const RECEIVERS: Example[] = [
  ...["node.ts", "stripe.ts", "standardwebhooks.ts"].map((file) => ({
    file,
    start: (port: number, secret: string) => run(process.execPath, [file], port, secret),
  })),
  { file: "worker.ts", start: startWorker },
  {
    file: "receiver.py",
    probe: ["python3", "--version"],
    start: (port, secret) => run("python3", ["receiver.py"], port, secret),
  },
  {
    file: "receiver.php",
    probe: ["php", "--version"],
    start: (port, secret) => run("php", ["-S", `127.0.0.1:${port}`, "receiver.php"], port, secret),
  },
  { file: "receiver.go", probe: ["go", "version"], isOptional: true, start: startGo },
  {
    file: "receiver.rb",
    // A gem, which newer versions of Ruby come without.
    probe: ["ruby", "-r", "webrick", "-e", ""],
    isOptional: true,
    start: (port, secret) => run("ruby", ["receiver.rb"], port, secret),
  },
  {
    file: "Receiver.java",
    // The compiler and a library: Java may be installed without either.
    probe: ["javap", "-cp", JAVA_LIBRARIES, "com.fasterxml.jackson.databind.ObjectMapper"],
    isOptional: true,
    start: (port, secret) =>
      run("java", ["-Xmx64m", "-cp", JAVA_LIBRARIES, "Receiver.java"], port, secret),
  },
];

/** Why an example cannot run here; `null` if it can. In CI everything else must run. */
export function reasonToSkip({ probe, isOptional }: Example): string | null {
  if ((process.env.CI && !isOptional) || !probe) return null;
  const [program = "", ...args] = probe;
  return spawnSync(program, args).status === 0 ? null : `\`${probe.join(" ")}\` fails`;
}

async function run(
  command: string,
  args: string[],
  port: number,
  secret: string,
): Promise<RunningExample> {
  const folder = mkdtempSync(join(tmpdir(), "receiver-"));
  const own = { PORT: String(port), WEBHOOK_SECRET: secret, HOME: folder, TMPDIR: folder };
  const env = { ...process.env, ...own };
  const { child, output, ended } = startProgram([command, ...args], { cwd: EXAMPLES, env });
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  let hasEnded = false;
  void ended.finally(() => {
    hasEnded = true;
  });
  await until(() => {
    if (hasEnded) throw new Error(`${command} has ended:\n${output()}`);
    return answers(port);
  });
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true });
  };
  return { lines, pid: Number(child.pid), folder, stop };
}

async function answers(port: number): Promise<boolean> {
  return fetch(`http://127.0.0.1:${port}/`, { method: "POST" }).then(
    () => true,
    () => false,
  );
}

/** The Go example, compiled first: `go run` would be another process than the one that listens. */
async function startGo(port: number, secret: string): Promise<RunningExample> {
  const built = mkdtempSync(join(tmpdir(), "built-"));
  execFileSync("go", ["build", "-o", built, join(EXAMPLES, "receiver.go")]);
  const receiver = await run(join(built, "receiver"), [], port, secret);
  const stop = async () => {
    await receiver.stop();
    rmSync(built, { recursive: true });
  };
  return { ...receiver, stop };
}

/** The Workers example in workerd, with its own configuration. */
async function startWorker(port: number, secret: string): Promise<RunningExample> {
  const { convertV4MiniflareOptions, Miniflare } = await import("miniflare");
  const { unstable_getMiniflareWorkerOptions, unstable_readConfig } = await import("wrangler");
  const lines: string[] = [];
  const config = unstable_readConfig({ config: join(EXAMPLES, "wrangler.toml") });
  const { workerOptions } = unstable_getMiniflareWorkerOptions(config);
  const settings: Record<string, unknown> = { ...workerOptions };
  delete settings.rootPath;
  delete settings.modulesRules;
  const contents = stripTypeScriptTypes(readFileSync(join(EXAMPLES, "worker.ts"), "utf8"));
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      ...settings,
      name: "webhook-receiver",
      port,
      modules: [{ type: "ESModule", path: "worker.js", contents }],
      bindings: { WEBHOOK_SECRET: secret },
      // The runtime's own messages have another level.
      handleStructuredLogs: ({ level, message }) => {
        if (level === "log") lines.push(message);
      },
    }),
  );
  const before = childrenOf();
  await miniflare.ready;
  const [pid = 0] = childrenOf().filter((child) => !before.includes(child));
  return { lines, pid, folder: "", stop: () => miniflare.dispose() };
}
