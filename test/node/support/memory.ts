import { existsSync, statfsSync } from "node:fs";

const MEMORY = "/dev/shm";
const ROOM_BYTES = 2 ** 31;

/**
 * Keeps the databases of local runtimes in memory, if the system has a folder there with room, which a
 * container may lack. On disk, every commit waits for the disk, which says nothing about D1.
 */
export function useMemory(): void {
  if (existsSync(MEMORY) && spaceIn(MEMORY) > ROOM_BYTES) process.env.TMPDIR = MEMORY;
}

function spaceIn(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}
