import { existsSync } from "node:fs";

/** Where Debian, Alpine, Google's packages and macOS put the browser. */
const USUAL_PLACES = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/**
 * The Chromium of this machine: what `CHROMIUM` names, or else the first in the usual places; null
 * when there is none.
 *
 * @throws Error when `CHROMIUM` names no file.
 */
export function findChromium(): string | null {
  const { CHROMIUM } = process.env;
  if (!CHROMIUM) return USUAL_PLACES.find((path) => existsSync(path)) ?? null;
  if (!existsSync(CHROMIUM)) throw new Error(`CHROMIUM names no file: ${CHROMIUM}`);
  return CHROMIUM;
}
