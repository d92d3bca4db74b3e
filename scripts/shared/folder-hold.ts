import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { z } from "@hono/zod-openapi";
import { makeWritable } from "./checkout.ts";

/** The holder of a folder: a server on `port` that answers with `token`, as long as it lives. */
const Holder = z.object({
  port: z.int().min(1).max(65_535),
  token: z.string(),
  address: z.string(),
});
type Holder = z.infer<typeof Holder>;

const ANSWER_PATIENCE_MS = 1_000;

/**
 * Holds `folder` for this process, so that no second start works on the same data. Creates the
 * folder; one held by a dead process is free.
 *
 * @param address where this start serves, for the second one's message.
 * @returns a function that releases it.
 * @throws Error if it is held or not writable.
 */
export async function holdFolder(folder: string, address: string): Promise<() => void> {
  makeWritable(folder);
  const file = `${folder}/start.json`;
  const token = randomUUID();
  const server = createServer((socket) => socket.on("error", () => {}).end(token));
  server.listen(0, "127.0.0.1").unref();
  await once(server, "listening");
  const holder: Holder = { port: (server.address() as AddressInfo).port, token, address };
  while (!tryWrite(file, JSON.stringify(holder))) {
    const other = read(file);
    if (other && (await isAlive(other))) {
      server.close();
      throw new Error(`\`npm start\` is already running in this folder, on ${other.address}.`);
    }
    rmSync(file, { force: true });
  }
  return () => {
    server.close();
    if (read(file)?.token === token) rmSync(file, { force: true });
  };
}

/** Where the start that holds `folder` serves; null if none does. */
export async function findHolder(folder: string): Promise<string | null> {
  const holder = read(`${folder}/start.json`);
  return holder && (await isAlive(holder)) ? holder.address : null;
}

/** Writes a file that does not exist yet. @returns whether it did not. */
function tryWrite(file: string, content: string): boolean {
  try {
    writeFileSync(file, content, { flag: "wx" });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

function read(file: string): Holder | null {
  try {
    return Holder.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    return null;
  }
}

async function isAlive({ port, token }: Holder): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  const silence = setTimeout(ANSWER_PATIENCE_MS, "", { ref: false });
  const answer = await Promise.race([text(socket).catch(() => ""), silence]);
  socket.destroy();
  return answer === token;
}
