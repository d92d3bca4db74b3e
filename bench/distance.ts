import { bindingOf, databaseNames } from "../src/db/databases.ts";
import { type CarryOut, wrapDatabase, wrapObjects } from "../test/support/bindings.ts";

/**
 * The bindings as seen from this far away from the database and the gates.
 *
 * @param roundTripMs what each call to a binding takes in addition to its own time.
 */
export function distant(env: Env, roundTripMs: number): Env {
  if (roundTripMs === 0) return env;
  const travel: CarryOut = async (_call, _name, work) => {
    const [result] = await Promise.all([
      work(),
      new Promise((resolve) => setTimeout(resolve, roundTripMs)),
    ]);
    return result;
  };
  const databases = databaseNames(env).map((name) => [
    name,
    wrapDatabase(bindingOf(env, name), travel),
  ]);
  return {
    ...env,
    ...Object.fromEntries(databases),
    KEY_GATE: wrapObjects(env.KEY_GATE, travel),
    ADDRESS_GATE: wrapObjects(env.ADDRESS_GATE, travel),
  };
}
