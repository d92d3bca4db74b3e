import { readdirSync, readFileSync } from "node:fs";
import autocannon from "autocannon";
import type { Samples } from "./figures.ts";
import { type Bundle, type Extent, openWorkspace, recordAutomations, start } from "./setting.ts";

const CONNECTIONS = 10;
/** What `getconf CLK_TCK` says on Linux. */
const TICKS_A_SECOND = 100;

const EXTENTS = {
  full: { warmUpSeconds: 3, rounds: 10, seconds: 3 },
  quick: { warmUpSeconds: 3, rounds: 6, seconds: 2 },
  smoke: { warmUpSeconds: 1, rounds: 1, seconds: 1 },
};

/**
 * A page of 25 automations, by the shipped Worker and by a bare handler over the same gate and query.
 * Rounds alternate; who comes first, too, as both still warm up.
 */
export async function measureFramework(extent: Extent): Promise<Samples> {
  const { warmUpSeconds, rounds, seconds } = EXTENTS[extent];
  const [shipped, bare] = [await startLoaded("shipped"), await startLoaded("bare")];
  for (const { load } of [shipped, bare]) await load(warmUpSeconds);
  const found = { ratios: [] as number[], cpu: [] as number[], bareCpu: [] as number[] };
  for (let i = 0; i < rounds; i++) {
    const first = await (i % 2 === 0 ? shipped : bare).load(seconds);
    const second = await (i % 2 === 0 ? bare : shipped).load(seconds);
    const [ours, its] = i % 2 === 0 ? [first, second] : [second, first];
    found.ratios.push(ours.requestsPerSecond / its.requestsPerSecond);
    found.cpu.push(ours.cpuMsPerRequest);
    found.bareCpu.push(its.cpuMsPerRequest);
  }
  for (const { stop } of [shipped, bare]) await stop();
  return {
    framework_ratio: found.ratios,
    cpu_ms_per_request: found.cpu,
    bare_cpu_ms_per_request: found.bareCpu,
  };
}

async function startLoaded(bundle: Bundle) {
  const before = new Set(runtimeProcesses());
  const runtime = await start(bundle);
  const processes = runtimeProcesses().filter((pid) => !before.has(pid));
  const { workspaceId, apiKey } = await openWorkspace(runtime);
  await recordAutomations(runtime, workspaceId);
  return {
    stop: runtime.stop,
    async load(seconds: number) {
      const before = cpuSeconds(processes);
      const { requests, non2xx, errors } = await autocannon({
        url: new URL("/v1/automations", runtime.url).href,
        connections: CONNECTIONS,
        duration: seconds,
        headers: { Authorization: `Bearer ${apiKey}` },
      });
      if (non2xx > 0 || errors > 0) throw new Error(`${non2xx + errors} requests failed`);
      return {
        requestsPerSecond: requests.average,
        cpuMsPerRequest: ((cpuSeconds(processes) - before) * 1000) / requests.total,
      };
    },
  };
}

/** The Workers runtimes that this process has started; none without `/proc`. */
function runtimeProcesses(): string[] {
  const pids = readProc(() => readdirSync("/proc").filter((name) => /^\d+$/.test(name))) ?? [];
  return pids.filter((pid) => {
    const stat = readProc(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
    const parent = stat?.slice(stat.lastIndexOf(")") + 2).split(" ")[1];
    return parent === String(process.pid) && stat?.includes("(workerd");
  });
}

/** CPU time used by the processes; NaN if unknown. */
function cpuSeconds(pids: string[]): number {
  if (pids.length === 0) return Number.NaN;
  const ticks = pids.map((pid) => {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return Number(fields[11]) + Number(fields[12]);
  });
  return ticks.reduce((sum, value) => sum + value, 0) / TICKS_A_SECOND;
}

/** A process may be gone by the time it is examined. */
function readProc<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}
