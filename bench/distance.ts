/** Waits as long as an answer from far away would take to come. */
type Travel = <T>(answer: Promise<T>) => Promise<T>;

/** @param roundTripMs what each call to a binding takes on top of its own time. */
function travel(roundTripMs: number): Travel {
  if (roundTripMs === 0) return (answer) => answer;
  return async (answer) => {
    const [result] = await Promise.all([
      answer,
      new Promise((resolve) => setTimeout(resolve, roundTripMs)),
    ]);
    return result;
  };
}

/** The bindings as they are from a place that far from the database and the gates. */
export function distant(env: Env, roundTripMs: number): Env {
  if (roundTripMs === 0) return env;
  const go = travel(roundTripMs);
  return {
    ...env,
    DB: distantDatabase(env.DB, go),
    KEY_GATE: distantObjects(env.KEY_GATE, go),
    ADDRESS_GATE: distantObjects(env.ADDRESS_GATE, go),
  };
}

function distantDatabase<T extends D1Database | D1DatabaseSession>(db: T, go: Travel): T {
  const distantStatement = (statement: D1PreparedStatement): D1PreparedStatement =>
    ({
      statement,
      bind: (...values: unknown[]) => distantStatement(statement.bind(...values)),
      all: () => go(statement.all()),
      run: () => go(statement.run()),
      raw: () => go(statement.raw()),
    }) as unknown as D1PreparedStatement;
  return {
    prepare: (query: string) => distantStatement(db.prepare(query)),
    batch: (statements: { statement: D1PreparedStatement }[]) =>
      go(db.batch(statements.map(({ statement }) => statement))),
    withSession: (since: string) => distantDatabase((db as D1Database).withSession(since), go),
    getBookmark: () => (db as D1DatabaseSession).getBookmark(),
  } as unknown as T;
}

type Calls = Record<string, (...parameters: unknown[]) => Promise<unknown>>;

function distantObjects<T extends Env["KEY_GATE"] | Env["ADDRESS_GATE"]>(
  objects: T,
  go: Travel,
): T {
  const getByName = (name: string) => {
    const stub = objects.getByName(name) as unknown as Calls;
    return new Proxy(stub, {
      get:
        (_, method: string) =>
        (...parameters: unknown[]) =>
          go((stub[method] as Calls[string])(...parameters)),
    });
  };
  return { getByName } as unknown as T;
}
