/** A fault of one line that somebody may make in `src`, and that tests notice. */
export interface Fault {
  /** Below `src`. */
  file: string;
  /** Occurs once in the file... */
  text: string;
  /** ...and is replaced by this. */
  replacement: string;
  /** What then no longer holds. */
  promise: string;
  /** How the simulation notices it, and in which world first. */
  simulated?: { violation: RegExp; seed: number };
}

/** The faults of one folder of `src`, one line each. */
export function faultsIn(
  folder: string,
  lines: [
    file: string,
    text: string,
    replacement: string,
    promise: string,
    simulated?: Fault["simulated"],
  ][],
): Fault[] {
  return lines.map(([file, text, replacement, promise, simulated]) => ({
    file: `${folder}${file}`,
    text,
    replacement,
    promise,
    ...(simulated && { simulated }),
  }));
}
