import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { ROOT, WRANGLER_ENV } from "../scripts/shared/checkout.ts";

/** The size of a bundle in bytes, raw and as uploaded. */
export function measureBundle(bundle: string) {
  const bytes = readFileSync(bundle);
  return { bytes: bytes.length, gzipBytes: gzipSync(bytes).length };
}

/**
 * CPU time of a Worker's startup in milliseconds, by `wrangler check startup`: the mean of several
 * profiles, each sampled every millisecond.
 *
 * @param config the wrangler configuration of the Worker.
 */
export function measureStartup(config: string, profiles: number): number {
  const folder = mkdtempSync(join(tmpdir(), "startup-"));
  const upload = join(folder, "worker.bundle");
  // Built separately: `check startup` would build the Worker of the root, whatever its `--config`.
  wrangler("deploy", "--config", config, "--dry-run", "--outfile", upload);
  const times = Array.from({ length: profiles }, (_, i) => {
    const outfile = join(folder, `${i}.cpuprofile`);
    wrangler("check", "startup", "--worker", upload, "--outfile", outfile);
    return busyMs(JSON.parse(readFileSync(outfile, "utf8")));
  });
  rmSync(folder, { recursive: true });
  return times.reduce((sum, ms) => sum + ms, 0) / profiles;
}

function wrangler(...words: string[]): void {
  const { status, stdout, stderr } = spawnSync(join(ROOT, "node_modules/.bin/wrangler"), words, {
    cwd: ROOT,
    encoding: "utf8",
    env: { ...process.env, ...WRANGLER_ENV },
  });
  if (status !== 0) throw new Error(`wrangler ${words[0]} failed:\n${stdout}${stderr}`);
}

/** A CPU profile as V8 writes it; times in microseconds. */
interface Profile {
  nodes: { id: number; callFrame: { functionName: string } }[];
  samples: number[];
  timeDeltas: number[];
}

function busyMs({ nodes, samples, timeDeltas }: Profile): number {
  const idle = new Set(
    nodes.filter(({ callFrame }) => callFrame.functionName === "(idle)").map(({ id }) => id),
  );
  const busy = timeDeltas.filter((_, i) => !idle.has(samples[i] ?? 0));
  return busy.reduce((sum, delta) => sum + delta, 0) / 1000;
}
