import type { D1Client } from "../../src/db/client.ts";

/** A call of a database: a transaction, or a query that is alone. */
export interface DatabaseCall {
  /** Its statements, as they were prepared, and the values that are bound to each. */
  texts: string[];
  values: unknown[][];
  /** A query that is alone, and by which method, such as `raw`. */
  alone?: { statement: D1PreparedStatement; method: string };
  /** Makes the call. */
  // biome-ignore lint/suspicious/noExplicitAny: whatever the database returns
  go(): Promise<any>;
}

interface Prepared {
  statement: D1PreparedStatement;
  text: string;
  values: unknown[];
}

/** A database whose calls are answered by `act`. */
export function interposed<T extends D1Client>(
  client: T,
  act: (call: DatabaseCall) => Promise<unknown>,
): T {
  const known = new WeakMap<D1PreparedStatement, Prepared>();
  const wrap = ({ statement, text, values }: Prepared): D1PreparedStatement => {
    const wrapped = new Proxy(statement, {
      get(_, method: string) {
        if (method === "bind")
          return (...values: unknown[]) =>
            wrap({ statement: statement.bind(...values), text, values });
        const call = Reflect.get(statement, method);
        if (typeof call !== "function") return call;
        const alone = { statement, method };
        return (...options: unknown[]) =>
          act({ texts: [text], values: [values], alone, go: () => call.apply(statement, options) });
      },
    });
    known.set(wrapped, { statement, text, values });
    return wrapped;
  };
  return new Proxy(client, {
    get(_, name) {
      if (name === "prepare")
        return (text: string) => wrap({ statement: client.prepare(text), text, values: [] });
      if (name === "batch")
        return (statements: D1PreparedStatement[]) => {
          const all = statements.map(
            (statement) => known.get(statement) ?? { statement, text: "", values: [] },
          );
          return act({
            texts: all.map(({ text }) => text),
            values: all.map(({ values }) => values),
            go: () => client.batch(all.map(({ statement }) => statement)),
          });
        };
      const value: unknown = Reflect.get(client, name);
      return typeof value === "function" ? value.bind(client) : value;
    },
  });
}

/** Makes a call, and lets `count` see each result with its cost, which `raw` would not tell. */
export async function countedCall(
  { alone, go }: DatabaseCall,
  count: (result: D1Result<object>) => void,
): Promise<unknown> {
  if (!alone) {
    const results: D1Result<object>[] = await go();
    results.forEach(count);
    return results;
  }
  const result = await alone.statement.all<object>();
  count(result);
  return alone.method === "raw" ? result.results.map((row) => Object.values(row)) : result;
}

type Method = (...parameters: unknown[]) => Promise<unknown>;

/** Durable Objects whose calls are answered by `act`. */
export function interposedObjects<T extends Env["KEY_GATE"] | Env["ADDRESS_GATE"]>(
  objects: T,
  act: (go: () => Promise<unknown>) => Promise<unknown>,
): T {
  const getByName = (name: string) => {
    const stub = objects.getByName(name) as unknown as Record<string, Method>;
    return new Proxy(stub, {
      // Called on the stub: a remote method has no `apply`.
      get:
        (_, method: string) =>
        (...parameters: unknown[]) =>
          act(() => (stub[method] as Method)(...parameters)),
    });
  };
  return { getByName } as unknown as T;
}
