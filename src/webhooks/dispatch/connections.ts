import { timeBudget } from "../../timing.ts";

/** How many connections one workspace may use while the dispatch also serves others. */
const POSTS_PER_WORKSPACE = 3;
/** If no connection is taken or given back for this long, those who wait should not wait here. */
export const STUCK_MS = 500;

/** A place in the queue for a connection; once its turn has come, the connection itself. */
export interface Place {
  readonly isConnected: boolean;
  /** Leaves the queue, or gives the connection back. */
  leave(): void;
}

interface Queued {
  workspaceId: string;
  connect(): void;
}

/**
 * The connections of a dispatch: who has queued the longest posts next. Each subscription queues for one
 * post at a time, so that each gets its first before any gets a second. A workspace gets no more than its
 * share while there are others.
 */
export class Connections {
  #free: number;
  readonly #served: ReadonlyMap<string, string>;
  readonly #queue: Queued[] = [];
  readonly #used = new Map<string, number>();
  #moves = timeBudget(STUCK_MS);

  /**
   * @param max how many there are.
   * @param served the workspace of each subscription that the dispatch serves.
   */
  constructor(max: number, served: ReadonlyMap<string, string>) {
    this.#free = max;
    this.#served = served;
  }

  /** Whether nobody has got or given back a connection for a while. */
  get areStuck(): boolean {
    return !this.#moves();
  }

  /** @param onConnected called when its turn has come, unless that is at once. */
  queueUp(workspaceId: string, onConnected: () => void): Place {
    let isConnected = false;
    const queued: Queued = {
      workspaceId,
      connect() {
        isConnected = true;
        onConnected();
      },
    };
    this.#queue.push(queued);
    this.#connect();
    const leave = () => {
      if (isConnected) this.#use(workspaceId, -1);
      else this.#queue.splice(this.#queue.indexOf(queued), 1);
      this.#connect();
    };
    return {
      get isConnected() {
        return isConnected;
      },
      leave,
    };
  }

  #connect(): void {
    const share =
      new Set(this.#served.values()).size > 1 ? POSTS_PER_WORKSPACE : Number.POSITIVE_INFINITY;
    while (this.#free > 0) {
      const next = this.#queue.findIndex(
        ({ workspaceId }) => (this.#used.get(workspaceId) ?? 0) < share,
      );
      const [queued] = next < 0 ? [] : this.#queue.splice(next, 1);
      if (!queued) return;
      this.#use(queued.workspaceId, 1);
      queued.connect();
    }
  }

  #use(workspaceId: string, change: 1 | -1): void {
    this.#free -= change;
    this.#used.set(workspaceId, (this.#used.get(workspaceId) ?? 0) + change);
    this.#moves = timeBudget(STUCK_MS);
  }
}
