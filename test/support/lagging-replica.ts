import { WORKSPACE_DB } from "./placement.ts";

/**
 * D1 with a replica, which local D1 does not have: reads that require no bookmark, or one from
 * before `stop`, get what the same query returned before. Others are served by the primary.
 */
export function laggingReplica() {
  const before = new Map<string, object>();
  let stoppedAt: string | null = null;
  let staleReads = 0;
  const withSession = (since: string) => {
    const primary = WORKSPACE_DB.withSession("first-primary");
    const isStale = () => stoppedAt !== null && !isNewer(since, stoppedAt);
    const answer = async (how: "all" | "raw", query: string, parameters: unknown[]) => {
      const name = JSON.stringify([how, query, parameters]);
      const stale = before.get(name);
      if (stale && isStale()) {
        staleReads++;
        return structuredClone(stale);
      }
      const found = await primary
        .prepare(query)
        .bind(...parameters)
        [how]();
      // The result is copied, because its reader may change it.
      before.set(name, structuredClone(found));
      return found;
    };
    const statement = (query: string, parameters: unknown[]): object => ({
      original: primary.prepare(query).bind(...parameters),
      bind: (...values: unknown[]) => statement(query, values),
      all: () => answer("all", query, parameters),
      raw: () => answer("raw", query, parameters),
    });
    return {
      prepare: (query: string) => statement(query, []),
      batch: (statements: { original: D1PreparedStatement }[]) =>
        primary.batch(statements.map(({ original }) => original)),
      getBookmark: () => (isStale() ? stoppedAt : primary.getBookmark()),
    };
  };
  return {
    DB: { withSession } as unknown as D1Database,
    /** From now on, the replica gets no updates. */
    async stop() {
      const session = WORKSPACE_DB.withSession("first-primary");
      await session.prepare("SELECT 1").all();
      stoppedAt = session.getBookmark();
    },
    /** How many reads the replica has answered with stale data. */
    staleReads: () => staleReads,
  };
}

function isNewer(since: string, bookmark: string | null): boolean {
  if (since === "first-primary") return true;
  return since !== "first-unconstrained" && bookmark !== null && since > bookmark;
}
