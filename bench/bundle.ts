import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { ROOT, WRANGLER_ENV } from "../scripts/checkout.ts";

/** How large a bundle is, in bytes, raw and as it is uploaded. */
export function measureBundle(bundle: string) {
  const bytes = readFileSync(bundle);
  return { bytes: bytes.length, gzipBytes: gzipSync(bytes).length };
}

/**
 * Processor time of a Worker's start, in milliseconds, by `wrangler check startup`: the smallest of
 * some profiles, as all that others do on the machine adds to it.
 *
 * @param config the wrangler configuration of the Worker.
 */
export function measureStartup(config: string, profiles: number): number {
  const folder = mkdtempSync(join(tmpdir(), "startup-"));
  const times = Array.from({ length: profiles }, (_, i) => {
    const outfile = join(folder, `${i}.cpuprofile`);
    const { status, stdout, stderr } = spawnSync(
      join(ROOT, "node_modules/.bin/wrangler"),
      ["check", "startup", "--config", config, "--outfile", outfile],
      { cwd: ROOT, encoding: "utf8", env: { ...process.env, ...WRANGLER_ENV } },
    );
    if (status !== 0) throw new Error(`wrangler check startup failed:\n${stdout}${stderr}`);
    return busyMs(JSON.parse(readFileSync(outfile, "utf8")));
  });
  rmSync(folder, { recursive: true });
  return Math.min(...times);
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
