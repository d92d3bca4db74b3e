/** Kinds of calls to bindings. */
type Call = "D1 batch" | "D1 query" | "object";

/** Carries out a call to a binding: late, or not at all, for instance. D1's results come with their cost. */
export type CarryOut = <T>(call: Call, name: string, work: () => Promise<T>) => Promise<T>;

/** A statement, and how it is identified when it runs in a batch. */
interface Wrapped {
  statement: D1PreparedStatement;
  query: string;
}

/** The database with each call carried out by `carryOut`, named by the text of its queries. */
export function wrapDatabase<T extends D1Database | D1DatabaseSession>(
  db: T,
  carryOut: CarryOut,
): T {
  const wrap = (statement: D1PreparedStatement, query: string): D1PreparedStatement => {
    return {
      statement,
      query,
      bind: (...values: unknown[]) => wrap(statement.bind(...values), query),
      all: () => carryOut("D1 query", query, () => statement.all()),
      run: () => carryOut("D1 query", query, () => statement.run()),
      // `raw` does not report its cost; `all` returns the same rows if no two columns share a name.
      raw: async () => {
        const { results } = await carryOut("D1 query", query, () => statement.all());
        return results.map((row) => Object.values(row));
      },
    } satisfies Wrapped & Record<string, unknown> as unknown as D1PreparedStatement;
  };
  return {
    prepare: (query: string) => wrap(db.prepare(query), query),
    batch: (statements: D1PreparedStatement[]) => {
      const wrapped = statements as unknown as Wrapped[];
      const name = wrapped.map(({ query }) => query).join(";");
      return carryOut("D1 batch", name, () => db.batch(wrapped.map(({ statement }) => statement)));
    },
    withSession: (since: string) => wrapDatabase((db as D1Database).withSession(since), carryOut),
    getBookmark: () => (db as D1DatabaseSession).getBookmark(),
  } as unknown as T;
}

type Methods = Record<string, (...parameters: unknown[]) => Promise<unknown>>;

/** The objects with each method carried out by `carryOut`, named by the method. */
export function wrapObjects<T extends Env["KEY_GATE"] | Env["ADDRESS_GATE"]>(
  objects: T,
  carryOut: CarryOut,
): T {
  const getByName = (name: string) => {
    const stub = objects.getByName(name) as unknown as Methods;
    return new Proxy(stub, {
      get:
        (_, method: string) =>
        (...parameters: unknown[]) =>
          carryOut("object", `${name} ${method}`, () =>
            (stub[method] as Methods[string])(...parameters),
          ),
    });
  };
  return { getByName } as unknown as T;
}
