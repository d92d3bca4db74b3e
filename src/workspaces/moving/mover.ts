import { HOUR_MS, MINUTE_MS } from "../../contract/time.ts";
import { inOrder } from "../../db/client.ts";
import { DIRECTORY, openNamed } from "../../db/databases.ts";
import type { MovePosition } from "../../db/schema.ts";
import { MOVING_WAIT_MS } from "../../db/session.ts";
import { forgetKey } from "../../quota/forget.ts";
import { sleep } from "../../timing.ts";
import { hasLeases } from "../../webhooks/dispatch/lease.ts";
import { listDue, wake } from "../../webhooks/dispatch/wake.ts";
import { type GatedKey, listLiveKeys } from "../api-keys.ts";
import { eraseLeftBehind } from "../lifecycle/erase.ts";
import { MOVED, type OwnedTable } from "../manifest.ts";
import { inTime } from "../placement.ts";
import { applyChanges, deleteChanges, findChanges, findChunk, upsertRows } from "./copying.ts";
import { LeaseLost, OwnedMove } from "./owned-move.ts";
import {
  arrive,
  cancelMove,
  findLiving,
  openArrived,
  pointDirectory,
  pointTo,
  retractArrival,
  takeArrival,
  takeDirectoryEntry,
} from "./steps.ts";

/** How many key gates a mover tells at once... */
const MOVE_GATES_AT_ONCE = 50;
/** ...and how long each may take to answer. */
const MOVE_GATE_PATIENCE_MS = 5_000;
/**
 * How long writes wait for a switch before the workspace is opened again where it was. Less than
 * `MOVING_WAIT_MS`, so that they succeed there.
 */
const SWITCH_MAX_MS = 2_000;
/** How long to wait after a failed switch before the sweep tries again; doubles each time. */
const SWITCH_WAIT_MS = { first: MINUTE_MS, max: HOUR_MS } as const;
/** How long to wait, once no subscription is leased, for the last outcomes of dispatches. */
const DRAINED_MS = 300;
/** How long after a move what the workspace left behind is deleted: reads in progress have ended. */
const LEFT_BEHIND_MS = MINUTE_MS;

/** One try to continue a move, with its own identity. */
export class Mover extends OwnedMove {
  /** The keys whose gates must be told, by hash; undefined until they are listed. */
  #keys: GatedKey[] | undefined;
  /** When the sweep may continue the move. */
  #waitsUntil = 0;

  /**
   * Works on the move while there is time. A switch that has begun is finished or undone in any case,
   * because writes are waiting.
   *
   * @param isUrgent whether to do so even if the move is waiting after a failed switch.
   */
  work(hasTime: () => boolean, isUrgent: boolean): Promise<void> {
    return this.#owning(isUrgent, async () => {
      // Its mover died.
      if (this.move.state === "closed") return this.#goBack();
      if (this.move.state !== "gone") await this.#takeTarget();
      while (hasTime() && (await this.#step(hasTime)));
    });
  }

  /** Cancels a move that has not reached its switch, even if the target does not answer. */
  cancel(): Promise<void> {
    return this.#owning(true, async () => {
      if (this.move.state === "closed") await this.#goBack();
      if (this.move.state !== "gone") await this.#cancel();
    });
  }

  /** Takes over the move at the source for as long as `act` takes, unless another mover owns it. */
  async #owning(isUrgent: boolean, act: () => Promise<void>): Promise<void> {
    try {
      await this.take(isUrgent);
      await act();
    } catch (error) {
      if (!(error instanceof LeaseLost)) throw error;
    } finally {
      await this.#release();
    }
  }

  async #release(): Promise<void> {
    const isDraining = this.move.state === "draining";
    await this.releaseUntil(this.#waitsUntil);
    if (isDraining) await this.#wakeHere();
  }

  /**
   * Takes over the move at the target, so that its earlier movers can no longer write there. The source
   * is taken again: if this mover hung in between, another one may have taken over.
   */
  async #takeTarget(): Promise<void> {
    const workspace = await this.ask(this.from, findLiving(this.workspaceId));
    if (!workspace) throw new LeaseLost();
    const now = Date.now();
    const taken = takeArrival(this.move, this.from, workspace, this.mover, now);
    const entry = await this.ask(this.to, taken);
    await this.take();
    if (entry?.moveId !== this.move.moveId) {
      await this.#cancel();
      throw new Error(`${this.to} has not kept what was copied: the move was cancelled`);
    }
    // An earlier mover got that far, and then went back.
    if (entry.state === "arrived")
      await this.commit(
        this.to,
        ["arriving", "arrived"],
        retractArrival(this.workspaceId, this.from, now),
      );
  }

  /** Takes one step. @returns whether there may be another one. */
  async #step(hasTime: () => boolean): Promise<boolean> {
    switch (this.move.state) {
      case "copying":
        if (this.move.position) await this.#copyChunk(this.move.position);
        // A busy workspace always has more changes: the last ones are copied while it drains.
        else if (!(await this.#copyChanges()) && !(await this.#tellGates()))
          await this.enter("draining");
        return true;
      case "draining":
        if (!(await this.#copyChanges())) await this.#drain();
        return true;
      case "gone":
        return this.#cleanUp(hasTime);
      default:
        return false;
    }
  }

  async #copyChunk({ kind, after }: MovePosition): Promise<void> {
    const owned = MOVED[kind] as OwnedTable;
    const chunk = await this.ask(this.from, findChunk(this.workspaceId, owned, after));
    if (chunk.rows.length > 0)
      await this.commit(this.to, ["arriving"], upsertRows(owned, chunk.rows));
    const next = chunk.next ? { kind, after: chunk.next } : { kind: kind + 1, after: null };
    await this.update({ position: next.kind < MOVED.length ? next : null });
  }

  /** Copies the oldest of the rows written since copying began. @returns whether there are more. */
  async #copyChanges(): Promise<boolean> {
    const changed = await this.ask(this.from, findChanges(this.workspaceId));
    if (!changed) return false;
    await this.commit(this.to, ["arriving"], applyChanges(changed));
    await this.commitAtSource(deleteChanges(this.workspaceId, changed.through));
    return !changed.isAll;
  }

  /**
   * Tells the next gates of the workspace's keys to forget their standing, and to read it each time
   * until the move is over: so nobody has to be told at the switch.
   *
   * @returns whether there may be more.
   */
  async #tellGates(): Promise<boolean> {
    // Before the keys are listed: a gate that is not told reads this with its key's standing.
    if (this.move.gatesTold === null) await this.update({ gatesTold: "" });
    const told = this.move.gatesTold ?? "";
    this.#keys ??= await this.#listKeys();
    const next = this.#keys.filter(({ keyHash }) => keyHash > told).slice(0, MOVE_GATES_AT_ONCE);
    if (next.length === 0) return false;
    const telling = next.map((key) =>
      inTime("the gate of a key", forgetKey(this.env, key), MOVE_GATE_PATIENCE_MS),
    );
    const results = await Promise.allSettled(telling);
    const failed = results.findIndex(({ status }) => status === "rejected");
    const last = next.at(failed === -1 ? -1 : failed - 1);
    if (failed !== 0 && last) await this.update({ gatesTold: last.keyHash });
    await telling[failed];
    return true;
  }

  async #listKeys(): Promise<GatedKey[]> {
    const listed = listLiveKeys(openNamed(this.env, DIRECTORY), this.workspaceId, Date.now());
    const keys = await inTime(DIRECTORY, listed);
    return keys
      .filter(({ lastUsedAt }) => lastUsedAt !== null)
      .sort((a, b) => (a.keyHash < b.keyHash ? -1 : 1));
  }

  /** Waits until no subscription of the workspace is leased, while none is leased anew; then switches. */
  async #drain(): Promise<void> {
    const now = Date.now();
    if (await this.ask(this.from, hasLeases(this.workspaceId, now))) {
      await sleep(DRAINED_MS);
      await this.commitAtSource(inOrder([]));
    } else if (now - this.move.since < DRAINED_MS) await sleep(DRAINED_MS);
    else await this.#switch();
  }

  get #isBetweenOthers(): boolean {
    return this.from !== DIRECTORY && this.to !== DIRECTORY;
  }

  /** Switches the workspace to the target, while writes wait. If that fails, it goes back. */
  async #switch(): Promise<void> {
    // First, to notice a database that does not answer before writes wait.
    await this.#takeTarget();
    if (this.#isBetweenOthers)
      await this.ask(DIRECTORY, takeDirectoryEntry(this.workspaceId, this.mover));
    this.deadline = performance.now() + SWITCH_MAX_MS;
    try {
      await this.enter("closed");
      await this.retryUntilDeadline(() => this.#point());
    } catch (error) {
      // A new mover, so that no write of this one that is still on its way takes effect.
      const next = new Mover(this.env, this.from, this.move);
      next.deadline = performance.now() + MOVING_WAIT_MS;
      await next.retryUntilDeadline(async () => {
        await this.#release();
        await next.#reopen();
      });
      throw next.move.state === "gone" ? new LeaseLost() : error;
    }
    await this.#open();
  }

  /** Copies the last changes, and makes the directory say that the workspace lives in the target. */
  async #point(): Promise<void> {
    while (await this.#copyChanges());
    const workspace = await this.ask(this.from, findLiving(this.workspaceId));
    if (!workspace) return;
    const now = Date.now();
    await this.commit(this.to, ["arriving", "arrived"], arrive(workspace, now));
    if (this.#isBetweenOthers) {
      const { from, to, mover } = this;
      if (!(await this.ask(DIRECTORY, pointDirectory(this.workspaceId, from, to, mover))))
        throw new LeaseLost();
    }
    if (this.from === DIRECTORY) await this.#pointSource();
  }

  /** Makes the source say that the workspace lives in the target. */
  #pointSource(): Promise<unknown> {
    return this.commitAtSource(pointTo(this.workspaceId, null, this.to), ["closed", "gone"]);
  }

  /** Opens the workspace in the target. The directory says that it lives there. */
  async #open(): Promise<void> {
    this.deadline = performance.now() + MOVING_WAIT_MS;
    const wakes = await this.retryUntilDeadline(async () => {
      await this.#pointSource();
      const opened = inOrder([openArrived(this.move), listDue(this.workspaceId, Date.now())]);
      const [, due] = await this.ask(this.to, opened);
      await this.enter("gone");
      return due;
    });
    this.deadline = Number.POSITIVE_INFINITY;
    await wake(this.env, this.to, wakes);
  }

  /** Opens a closed workspace. */
  #reopen(): Promise<void> {
    return this.#owning(true, async () => {
      if (this.move.state === "closed") await this.#goBack();
    });
  }

  /**
   * Opens a closed workspace in the source, and lets the move wait; or in the target, if the directory
   * no longer says that it lives in the source.
   */
  async #goBack(): Promise<void> {
    const entry = takeDirectoryEntry(this.workspaceId, this.mover);
    // From now on, its earlier movers cannot switch it. It may even have moved on from the target.
    if ((await this.ask(DIRECTORY, entry)) !== this.from) return this.#open();
    const { failures } = this.move;
    await this.enter("copying", failures + 1);
    const waitMs = Math.min(SWITCH_WAIT_MS.first * 2 ** failures, SWITCH_WAIT_MS.max);
    this.#waitsUntil = Date.now() + waitMs;
    await this.#wakeHere();
  }

  async #cancel(): Promise<void> {
    if (!(await this.ask(this.from, cancelMove(this.move, this.mover)))) throw new LeaseLost();
    this.logState("cancelled");
    await this.#wakeHere();
  }

  /** Wakes subscriptions that had to wait while the workspace drained. */
  async #wakeHere(): Promise<void> {
    const due = await this.ask(this.from, listDue(this.workspaceId, Date.now()));
    await wake(this.env, this.from, due);
  }

  /** Deletes what the workspace left behind, once reads in progress have ended. */
  async #cleanUp(hasTime: () => boolean): Promise<boolean> {
    if (Date.now() - this.move.since < LEFT_BEHIND_MS) return false;
    while (!(await this.commitAtSource(eraseLeftBehind(this.workspaceId))))
      if (!hasTime()) return false;
    this.logState("done");
    return false;
  }
}
