import { InputError } from "../contract/input-error.ts";
import { DRAINED_MS, LEFT_BEHIND_MS } from "../contract/limits.ts";
import { commit, type Database, inOrder, readAs, type Statements } from "../db/client.ts";
import { DIRECTORY, openDirectory, openNamed } from "../db/databases.ts";
import { findHome, inTime } from "../db/homes.ts";
import type { MovePosition, MoveState } from "../db/schema.ts";
import { wake } from "../delivery/wake.ts";
import { callObject } from "../gate/call.ts";
import { log, logError } from "../log.ts";
import { listLiveKeys } from "../model/api-keys.ts";
import {
  KINDS_COPIED,
  readChanges,
  readPiece,
  writeChanges,
  writePiece,
} from "../model/copying.ts";
import { listDue } from "../model/due.ts";
import {
  beginMove,
  cancelArrival,
  cancelMove,
  changeState,
  deleteChanges,
  deleteMove,
  expectArrival,
  expectMover,
  findLiving,
  findMove,
  giveBackMove,
  isHeld,
  isOvertaken,
  keepMove,
  liveHere,
  type Move,
  openHere,
  pointTo,
  takeArrival,
  takeLine,
  takeMove,
  updatePosition,
  type Workspace,
} from "../model/moves.ts";
import { eraseLeftBehind } from "../model/workspace-erasure.ts";

/** How far a move has come. */
export interface MoveProgress {
  /** Whether the workspace lives in the database that it was to be moved to. */
  done: boolean;
  /** What is being done: `copying`, `draining`, `closed`, `cancelled`; null when nothing is. */
  state: MoveState | null;
}

/**
 * Moves a workspace to another database, or goes on with it; back to the one that it lives in, it ends
 * a move that has not come to its switch. Waits for somebody else who has the move, and may have died.
 *
 * @param mayGoOn whether there is time for more.
 * @throws InputError for a workspace that is being moved elsewhere, or erased.
 */
export async function moveWorkspace(
  env: Env,
  workspaceId: string,
  to: string,
  mayGoOn: () => boolean,
): Promise<MoveProgress> {
  for (let hasBegun = false; ; ) {
    const { database: from, db: source } = await findHome(env, workspaceId);
    const move = await commit(source, findMove(workspaceId));
    const state = move?.state ?? null;
    if (state === null || state === "left") {
      if (from === to) return { done: true, state: null };
      // Somebody has ended it.
      if (hasBegun) return { done: false, state: null };
      await begin(env, workspaceId, from, to);
      hasBegun = true;
    } else if (move && (state === "copying" || state === "draining")) {
      if (from === to) await new Mover(env, from, move).work(mayGoOn, "cancelled");
      else if (move.other !== to)
        throw new InputError(`database: this workspace is being moved to ${move.other}`);
      hasBegun ||= from !== to;
    } else if (state === "erasing")
      throw new InputError("workspaceId: this workspace is being erased");
    // It lives there, and whoever died before it was open left that to be done.
    const leaving = move?.state === "arrived" ? move.other : from;
    await goOn(env, leaving, workspaceId, mayGoOn);
    if (!mayGoOn()) return progressOf(env, workspaceId, to);
    await sleep(RETRY_MS);
  }
}

async function progressOf(env: Env, workspaceId: string, to: string): Promise<MoveProgress> {
  const { database, db } = await findHome(env, workspaceId);
  const move = await commit(db, findMove(workspaceId));
  const state = move && move.state !== "left" ? move.state : null;
  return { done: database === to && state === null, state };
}

async function begin(env: Env, workspaceId: string, from: string, to: string): Promise<void> {
  const [source, target] = [openNamed(env, from), openNamed(env, to)];
  const workspace = await commit(source, findLiving(workspaceId));
  if (!workspace) return;
  const now = Date.now();
  const arrival = await inTime(to, commit(target, expectArrival(workspace, from, now)));
  // It lives there by now: somebody else was faster.
  if (!arrival) return;
  if (arrival.state !== "arriving" || arrival.other !== from)
    throw new InputError(`database: what this workspace left in ${to} is still being deleted`);
  await commit(source, beginMove(workspaceId, to, now));
}

/** Goes on with the move of a workspace that is leaving a database, while there is time. */
export async function goOn(
  env: Env,
  from: string,
  workspaceId: string,
  mayGoOn: () => boolean,
): Promise<void> {
  const move = await commit(openNamed(env, from), findMove(workspaceId));
  if (move) await new Mover(env, from, move).work(mayGoOn);
}

const RETRY_MS = 250;

/** The mover has lost its move to another one, which goes on with it. */
class Overtaken extends Error {}

/** The states in which a workspace is on its way to the other database. */
const ON_ITS_WAY: MoveState[] = ["copying", "draining", "closed", "cancelled"];

class Mover {
  readonly #mover = crypto.randomUUID();
  readonly #env: Env;
  readonly #from: string;
  readonly #source: Database;
  readonly #target: Database;
  #move: Move;

  constructor(env: Env, from: string, move: Move) {
    this.#env = env;
    this.#from = from;
    this.#move = move;
    this.#source = openNamed(env, from);
    this.#target = openNamed(env, move.other);
  }

  get #id(): string {
    return this.#move.workspaceId;
  }

  /**
   * Goes on while there is time; a closed workspace is switched in any case, because its writes wait.
   *
   * @param end `cancelled` ends a move that has not come to its switch.
   */
  async work(mayGoOn: () => boolean, end?: "cancelled"): Promise<void> {
    try {
      if (end) await this.#cancel();
      await this.#take();
      while ((this.#move.state === "closed" || mayGoOn()) && (await this.#stepOrRetry(mayGoOn)));
    } catch (error) {
      if (!(error instanceof Overtaken)) throw error;
    } finally {
      await commit(this.#source, giveBackMove(this.#id, this.#mover));
      if (this.#move.state === "draining") await this.#wakeHere();
    }
  }

  /**
   * Takes the move, and keeps those who had it from writing where the workspace arrives. Taken twice:
   * who hung in between may have been overtaken by somebody who has done that since.
   *
   * @throws Overtaken when somebody else has the move.
   */
  async #take(): Promise<void> {
    await this.#takeHere();
    if (!ON_ITS_WAY.includes(this.#move.state)) return;
    await commit(this.#target, takeArrival(this.#id, this.#mover));
    await this.#takeHere();
  }

  async #takeHere(): Promise<void> {
    const move = await commit(this.#source, takeMove(this.#id, this.#mover, Date.now()));
    if (!move) throw new Overtaken();
    this.#move = move;
  }

  /** Commits statements unless the mover has lost the move: then nothing is written. @throws Overtaken */
  async #commit<R>(db: Database, states: MoveState[], statements: Statements<R>): Promise<R> {
    const expected = expectMover(this.#id, this.#mover, states);
    try {
      return await commit(
        db,
        readAs(inOrder([expected, statements]), ([, result]) => result),
      );
    } catch (error) {
      throw isOvertaken(error) ? new Overtaken() : error;
    }
  }

  /** The same where the workspace comes from; the mover keeps the move. */
  #atSource<R>(statements: Statements<R>): Promise<R> {
    const kept = inOrder([keepMove(this.#id, Date.now()), statements]);
    return this.#commit(
      this.#source,
      [this.#move.state],
      readAs(kept, ([, result]) => result),
    );
  }

  /** One step. While writes wait for it, it is tried again as long as there is time. */
  async #stepOrRetry(mayGoOn: () => boolean): Promise<boolean> {
    try {
      return await this.#step(mayGoOn);
    } catch (error) {
      if (error instanceof Overtaken || this.#move.state !== "closed" || !mayGoOn()) throw error;
      logError("move_failed", error, { workspace: this.#id });
      await sleep(RETRY_MS);
      return true;
    }
  }

  /** One step; gives whether there may be another one. */
  async #step(mayGoOn: () => boolean): Promise<boolean> {
    switch (this.#move.state) {
      case "copying":
        if (this.#move.position) await this.#copyPiece(this.#move.position);
        // While it is written to, there are always some.
        else if (!(await this.#copyChanges())) await this.#enter("draining");
        return true;
      case "draining":
        if (await this.#copyChanges()) return true;
        return this.#drain();
      case "closed":
        await this.#switch();
        return true;
      case "cancelled":
        await commit(this.#target, cancelArrival(this.#id, this.#mover, Date.now()));
        await this.#commit(this.#source, ["cancelled"], deleteMove(this.#id));
        return false;
      case "gone":
        return this.#cleanUp(mayGoOn);
      default:
        return false;
    }
  }

  async #enter(state: MoveState): Promise<void> {
    const now = Date.now();
    await this.#atSource(changeState(this.#id, state, now));
    this.#entered(state, now);
  }

  #entered(state: MoveState, now: number): void {
    this.#move = { ...this.#move, state, since: now };
    log("move", { workspace: this.#id, from: this.#from, to: this.#move.other, state });
  }

  /** Ends a move that has not come to its switch, even while the other database is away. */
  async #cancel(): Promise<void> {
    await this.#takeHere();
    if (this.#move.state !== "copying" && this.#move.state !== "draining") return;
    const now = Date.now();
    await this.#atSource(cancelMove(this.#id, now));
    this.#entered("cancelled", now);
    await this.#wakeHere();
  }

  /** Wakes what has waited while it drained. */
  async #wakeHere(): Promise<void> {
    await wake(this.#env, this.#from, await commit(this.#source, listDue(this.#id, Date.now())));
  }

  async #copyPiece({ kind, after }: MovePosition): Promise<void> {
    const piece = await commit(this.#source, readPiece(this.#id, kind, after));
    if (piece.rows.length > 0) await this.#commit(this.#target, ["arriving"], writePiece(piece));
    const next = piece.next ? { kind, after: piece.next } : { kind: kind + 1, after: null };
    const position = next.kind < KINDS_COPIED ? next : null;
    await this.#atSource(updatePosition(this.#id, position));
    this.#move = { ...this.#move, position };
  }

  /** Copies the first of what has been written meanwhile; gives whether that left any behind. */
  async #copyChanges(): Promise<boolean> {
    const changed = await commit(this.#source, readChanges(this.#id));
    if (changed.through === null) return false;
    await this.#commit(this.#target, ["arriving"], writeChanges(this.#id, changed));
    await this.#atSource(deleteChanges(this.#id, changed.through));
    return !changed.isAll;
  }

  /** Closes the workspace once nobody holds its subscriptions; nothing new is posted meanwhile. */
  async #drain(): Promise<boolean> {
    const now = Date.now();
    if (await commit(this.#source, isHeld(this.#id, now))) {
      await sleep(DRAINED_MS);
      await this.#atSource(inOrder([]));
    } else if (now - this.#move.since < DRAINED_MS) await sleep(DRAINED_MS);
    else await this.#enter("closed");
    return true;
  }

  /** From here on whoever writes waits: what is left is copied, and the workspace lives there. */
  async #switch(): Promise<void> {
    while (await this.#copyChanges());
    const [id, mover, to] = [this.#id, this.#mover, this.#move.other];
    const workspace = await commit(this.#source, findLiving(id));
    if (workspace) await this.#point(workspace);
    // What is written there is found by everybody who reads afterwards.
    const keys = await listLiveKeys(openDirectory(this.#env), id, Date.now());
    await Promise.all(
      keys
        .filter(({ lastUsedAt }) => lastUsedAt !== null)
        .map(({ keyHash }) => callObject(this.#env.KEY_GATE, keyHash, (gate) => gate.forget())),
    );
    const [, wakes] = await commit(
      this.#target,
      inOrder([openHere(id, mover), listDue(id, Date.now())]),
    );
    await this.#enter("gone");
    await wake(this.#env, to, wakes);
  }

  /** Lets everybody find the workspace in the other database, last where it comes from. */
  async #point(workspace: Workspace): Promise<void> {
    const [id, from, to] = [this.#id, this.#from, this.#move.other];
    const directory = openDirectory(this.#env);
    const isBetweenOthers = from !== DIRECTORY && to !== DIRECTORY;
    // Before `liveHere`, which fails if somebody has moved it on since.
    if (isBetweenOthers) await commit(directory, takeLine(id, to, this.#mover, Date.now()));
    await this.#commit(this.#target, ["arriving", "arrived"], liveHere(workspace, Date.now()));
    if (isBetweenOthers) await this.#commit(directory, ["left", "gone"], pointTo(id, from, to));
    await this.#atSource(pointTo(id, null, to));
  }

  /** Deletes what the workspace has left behind, once reads that began before are over. */
  async #cleanUp(mayGoOn: () => boolean): Promise<boolean> {
    if (Date.now() - this.#move.since < LEFT_BEHIND_MS) return false;
    while (!(await this.#atSource(eraseLeftBehind(this.#id)))) if (!mayGoOn()) return false;
    await this.#enter("left");
    return false;
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
