import { env } from "cloudflare:workers";
import { interposed, interposedObjects } from "./interposed.ts";
import { WORKSPACE_DB } from "./placement.ts";

/**
 * Bindings whose calls are made immediately but answered in rounds: a round ends when every pending
 * call has its answer and nothing else is running. Rounds are the network hops on the critical
 * path.
 */
export function countHops(db = WORKSPACE_DB) {
  let hops = 0;
  let atResponse: number | undefined;
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
      KEY_GATE: interposedObjects(env.KEY_GATE, hop),
      ADDRESS_GATE: interposedObjects(env.ADDRESS_GATE, hop),
    },
    /** Leaves out the hops that come after this response, such as those of the audit trail. */
    respond() {
      atResponse = hops;
    },
    /** The hops since the last call. */
    taken() {
      const taken = atResponse ?? hops;
      hops = 0;
      atResponse = undefined;
      return taken;
    },
  };
}
