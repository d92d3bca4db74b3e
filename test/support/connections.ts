/** How many requests of an invocation wait for their response; the runtime queues the others. */
const CONNECTIONS = 6;

/** The connections of one invocation, as Cloudflare limits them. The local runtime does not. */
export class Connections {
  #free = CONNECTIONS;
  readonly #queued: (() => void)[] = [];

  /** Makes a request once a connection is free: the seventh waits. */
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
