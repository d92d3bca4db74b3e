import { AsyncLocalStorage } from "node:async_hooks";
import { Connections } from "../test/support/connections.ts";

const invocation = new AsyncLocalStorage<Connections>();

const { fetch: post } = globalThis;
globalThis.fetch = (...request: Parameters<typeof post>) => connected(() => post(...request));

/** Runs an invocation with connections of its own. */
export function withConnections<T>(run: () => T): T {
  return invocation.run(new Connections(), run);
}

/** Makes a request of the invocation. Calls that are not documented to take a connection, as D1's, do not. */
export function connected<T>(send: () => Promise<T>): Promise<T> {
  return invocation.getStore()?.use(send) ?? send();
}
