import { env } from "cloudflare:workers";
import { interposed } from "./interposed.ts";
import { WORKSPACE_DB } from "./placement.ts";

/**
 * Bindings whose calls are made immediately but answered in rounds: a round ends when every pending
 * call has its answer and nothing else is running. Rounds are the network hops on the critical
 * path.
 */
export function countHops(db = WORKSPACE_DB) {
  let hops = 0;
  let underWay = 0;
  let arrivals: (() => void)[] = [];
  const endRound = () => {
    if (underWay > 0 || arrivals.length === 0) return;
    hops++;
    const arriving = arrivals;
    arrivals = [];
    for (const arrive of arriving) arrive();
  };
  const hop = async <T>(call: () => Promise<T>): Promise<T> => {
    underWay++;
    const [settled] = await Promise.allSettled([call()]);
    underWay--;
    await new Promise<void>((resolve) => {
      arrivals.push(resolve);
      setTimeout(endRound, 5);
    });
    if (settled.status === "rejected") throw settled.reason;
    return settled.value;
  };
  return {
    overrides: {
      DB: interposed(db, ({ go }) => hop(go)),
      KEY_GATE: hopsToObjects(env.KEY_GATE, hop),
      ADDRESS_GATE: hopsToObjects(env.ADDRESS_GATE, hop),
    },
    /** The hops since the last call. */
    taken() {
      const taken = hops;
      hops = 0;
      return taken;
    },
  };
}

type Hop = <T>(call: () => Promise<T>) => Promise<T>;

function hopsToObjects<T extends Env["KEY_GATE"] | Env["ADDRESS_GATE"]>(objects: T, hop: Hop): T {
  const getByName = (name: string) => {
    const stub = objects.getByName(name) as unknown as Record<string, Call>;
    return new Proxy(stub, {
      // Called on the stub: a remote method has no `apply`.
      get:
        (_, method: string) =>
        (...parameters: unknown[]) =>
          hop(() => (stub[method] as Call)(...parameters)),
    });
  };
  return { getByName } as unknown as T;
}

type Call = (...parameters: unknown[]) => Promise<unknown>;
