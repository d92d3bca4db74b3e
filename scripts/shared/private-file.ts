import { closeSync, fchmodSync, openSync, writeFileSync } from "node:fs";

/**
 * Writes a file that only this user can read, even if it exists with other permissions.
 *
 * @param flag `w` replaces the content, and `a` appends to it.
 */
export function writePrivateFile(file: string, text: string, flag: "w" | "a" = "w"): void {
  const descriptor = openSync(file, flag, 0o600);
  try {
    // The mode above applies only to a file that is created.
    fchmodSync(descriptor, 0o600);
    writeFileSync(descriptor, text);
  } finally {
    closeSync(descriptor);
  }
}
