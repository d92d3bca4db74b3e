import { readdirSync, readFileSync } from "node:fs";
import autocannon from "autocannon";
import { startRuntime } from "../scripts/shared/runtime.ts";
import { openWorkspace } from "./isolation.ts";
import { recordAutomations } from "./reads.ts";
import { median } from "./statistics.ts";

const CONNECTIONS = 10;
const WARM_UP_SECONDS = 3;
/** What `getconf CLK_TCK` says on Linux. */
const TICKS_A_SECOND = 100;

/** A Worker under load. */
interface Load {
  requestsPerSecond: number;
  cpuMsPerRequest: number;
}

/**
 * `GET /v1/automations` with 25 items, by the shipped bundle and by a bare handler over the same gate
 * and the same query: rounds of both alternate, an
 * even number of them.
 *
 * @param bundle that of the shipped Worker.
 * @param floorBundle that of `bench/floor.ts`.
 */
export async function measureFramework(
  bundle: string,
  floorBundle: string,
  rounds: number,
  seconds: number,
) {
  const shipped = await startLoaded(bundle);
  const bare = await startLoaded(floorBundle);
  const found = { shipped: [] as Load[], bare: [] as Load[] };
  await shipped.load(WARM_UP_SECONDS);
  await bare.load(WARM_UP_SECONDS);
  for (let i = 0; i < rounds; i++) {
    // By turns who comes first: both still warm up.
    if (i % 2 === 0) found.shipped.push(await shipped.load(seconds));
    found.bare.push(await bare.load(seconds));
    if (i % 2 === 1) found.shipped.push(await shipped.load(seconds));
  }
  await shipped.stop();
  await bare.stop();
  const rate = (loads: Load[]) => median(loads.map(({ requestsPerSecond }) => requestsPerSecond));
  const cpu = (loads: Load[]) => median(loads.map(({ cpuMsPerRequest }) => cpuMsPerRequest));
  return {
    requestsPerSecond: rate(found.shipped),
    bareRequestsPerSecond: rate(found.bare),
    // Of neighbours in time: the machine is shared.
    frameworkRatio: median(
      found.shipped.map(
        (load, i) => load.requestsPerSecond / (found.bare[i]?.requestsPerSecond ?? Number.NaN),
      ),
    ),
    cpuMsPerRequest: cpu(found.shipped),
    bareCpuMsPerRequest: cpu(found.bare),
  };
}

async function startLoaded(bundle: string) {
  const before = new Set(runtimeProcesses());
  const runtime = await startRuntime({
    bundle,
    vars: { QUOTA_REQUESTS: 100_000_000 },
    withoutAssets: true,
  });
  const processes = runtimeProcesses().filter((pid) => !before.has(pid));
  const { workspaceId, apiKey } = await openWorkspace(runtime, []);
  await recordAutomations(runtime, workspaceId, 25);
  return {
    stop: runtime.stop,
    async load(seconds: number): Promise<Load> {
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
