import { afterAll } from "vitest";

/** What a file of tests opens, such as a server. It ends after the last of its tests. */
export async function opened<T extends { stop(): unknown } | { close(): unknown }>(
  opening: Promise<T>,
): Promise<T> {
  const it = await opening;
  afterAll(async () => void (await ("stop" in it ? it.stop() : it.close())));
  return it;
}
