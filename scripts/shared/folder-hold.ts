import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join, relative } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { makeWritable } from "./checkout.ts";

const ANSWER_PATIENCE_MS = 1_000;

/** The socket on which the holder of a folder answers with its address; relative, as its path must be short. */
const socketIn = (folder: string) => relative(process.cwd(), join(folder, "start.sock"));

/**
 * Holds `folder` for this process, so that no second start works on the same data. Creates the
 * folder; one held by a dead process is free.
 *
 * @param address where this start serves.
 * @returns a function that releases it.
 * @throws Error if it is held or not writable.
 */
export async function holdFolder(folder: string, address: string): Promise<() => void> {
  makeWritable(folder);
  for (;;) {
    const server = createServer((socket) => socket.on("error", () => {}).end(address));
    try {
      await once(server.listen(socketIn(folder)).unref(), "listening");
      // Closing deletes the socket.
      return () => void server.close();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    }
    const other = await findHolder(folder);
    if (other !== null)
      throw new Error(`\`npm start\` is already running in this folder, on ${other}.`);
    rmSync(socketIn(folder), { force: true });
  }
}

/** Where the start that holds `folder` serves; null if none does. */
export async function findHolder(folder: string): Promise<string | null> {
  const socket = connect(socketIn(folder));
  const silence = setTimeout(ANSWER_PATIENCE_MS, "", { ref: false });
  const answer = await Promise.race([text(socket).catch(() => ""), silence]);
  socket.destroy();
  return answer === "" ? null : answer;
}
