import { AsyncLocalStorage } from "node:async_hooks";

/** How many requests of an invocation may wait for their response. The local runtime lets any number. */
const CONNECTIONS = 6;

/** The connections of one invocation. Where it is not documented, as for D1, a call takes none. */
class Connections {
  #free = CONNECTIONS;
  readonly #queued: (() => void)[] = [];

  async use<T>(send: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#queued.push(resolve));
    try {
      return await send();
    } finally {
      const next = this.#queued.shift();
      if (next) next();
      else this.#free++;
    }
  }
}

const invocation = new AsyncLocalStorage<Connections>();

const { fetch: post } = globalThis;
globalThis.fetch = (...request: Parameters<typeof post>) => connected(() => post(...request));

/** Runs an invocation with connections of its own. */
export function withConnections<T>(run: () => T): T {
  return invocation.run(new Connections(), run);
}

/** Makes a request of the invocation once a connection is free: the seventh waits. */
export function connected<T>(send: () => Promise<T>): Promise<T> {
  return invocation.getStore()?.use(send) ?? send();
}
