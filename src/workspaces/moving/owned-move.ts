import { commit, type Executable, inOrder, type ResultOf } from "../../db/client.ts";
import { openNamed } from "../../db/databases.ts";
import type { MoveState } from "../../db/schema.ts";
import { log, logError } from "../../log.ts";
import { sleep } from "../../timing.ts";
import {
  expectMover,
  isOvertaken,
  type Move,
  releaseMove,
  renewMove,
  takeMove,
  updateMove,
} from "../moves.ts";
import { DatabaseUnreachable, inTime } from "../placement.ts";

/** How long a database may take to answer a mover; less than `MOVER_MS`. */
const MOVER_PATIENCE_MS = 10_000;

/** Another mover has taken over, or the move is over. */
export class Overtaken extends Error {}

/** How long to wait before another try, while writes wait for it. */
const RETRY_MS = 100;

/** A move, as one mover owns it. Each mover has its own identity. */
export class OwnedMove {
  readonly mover = crypto.randomUUID();
  /** The names of the source and of the target. */
  readonly from: string;
  readonly to: string;
  /** When all must be done, by `performance.now()`. */
  deadline = Number.POSITIVE_INFINITY;
  move: Move;
  protected readonly env: Env;

  constructor(env: Env, from: string, move: Move) {
    this.env = env;
    this.from = from;
    this.to = move.other;
    this.move = move;
  }

  get workspaceId(): string {
    return this.move.workspaceId;
  }

  /**
   * Takes over the move at the source, or makes sure that this mover still owns it.
   *
   * @param isUrgent whether to take it over even if it is waiting after a failed switch.
   * @throws Overtaken if another mover owns it.
   */
  async take(isUrgent = false): Promise<void> {
    const taken = takeMove(this.move, this.mover, Date.now(), isUrgent);
    const move = await this.ask(this.from, taken);
    if (!move) throw new Overtaken();
    this.move = move;
  }

  /** @param until when the sweep may continue the move, in Unix milliseconds. */
  async releaseUntil(until: number): Promise<void> {
    this.deadline = Number.POSITIVE_INFINITY;
    await this.ask(this.from, releaseMove(this.workspaceId, this.mover, until));
  }

  /** Commits statements in a database. @throws DatabaseUnreachable if there is no answer in time. */
  async ask<P extends Executable>(database: string, part: P): Promise<ResultOf<P>> {
    const leftMs = this.deadline - performance.now();
    if (leftMs <= 0) throw new DatabaseUnreachable(`out of time before ${database} was asked`);
    const answer = commit(openNamed(this.env, database), part);
    return inTime(database, answer, Math.min(leftMs, MOVER_PATIENCE_MS));
  }

  /**
   * Commits statements in a database where the move is in one of these states.
   *
   * @throws Overtaken if another mover has taken over; nothing is written then.
   */
  async commit<P extends Executable>(
    database: string,
    states: MoveState[],
    part: P,
  ): Promise<ResultOf<P>> {
    const all = inOrder([expectMover(this.workspaceId, this.mover, states), part]);
    try {
      const [, result] = await this.ask(database, all);
      return result as ResultOf<P>;
    } catch (error) {
      throw isOvertaken(error) ? new Overtaken() : error;
    }
  }

  /** Commits statements at the source, and renews the lease. */
  async commitAtSource<P extends Executable>(
    part: P,
    states = [this.move.state],
  ): Promise<ResultOf<P>> {
    const kept = inOrder([renewMove(this.workspaceId, Date.now()), part]);
    const [, result] = await this.commit(this.from, states, kept);
    return result as ResultOf<P>;
  }

  /** Changes the row of the move at the source. */
  async update(fields: Partial<Pick<Move, "position" | "gatesTold">>): Promise<void> {
    await this.commitAtSource(updateMove(this.workspaceId, fields));
    this.move = { ...this.move, ...fields };
  }

  /** Enters a state. If the reply was lost, a second try finds itself in that state. */
  async enter(state: MoveState, failures = this.move.failures): Promise<void> {
    const entered = { state, failures, since: Date.now() };
    const states = [this.move.state, state];
    await this.commitAtSource(updateMove(this.workspaceId, entered), states);
    this.move = { ...this.move, ...entered };
    this.logState(state);
  }

  logState(state: MoveState | "cancelled" | "done"): void {
    log("move", { workspaceId: this.workspaceId, from: this.from, to: this.to, state });
  }

  /** Repeats an act that fails, until the deadline. @throws what it failed with first. */
  async insist<R>(act: () => Promise<R>): Promise<R> {
    const { deadline } = this;
    for (let first: unknown; ; ) {
      try {
        return await act();
      } catch (error) {
        if (error instanceof Overtaken) throw error;
        first ??= error;
        logError("move_failed", error, { workspaceId: this.workspaceId });
        if (performance.now() + RETRY_MS > deadline) throw first;
        await sleep(RETRY_MS);
      }
    }
  }
}
