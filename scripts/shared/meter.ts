import { progress } from "@clack/prompts";
import { openProgress } from "./command.ts";

/** Shows the progress of a command. */
export interface Meter {
  /** @param done how much of the total is done. */
  show(done: number, text: string): void;
  end(text: string): void;
}

/**
 * Opens a meter on standard error; standard output is for results. In a terminal, it is a progress bar
 * if `total` is known; otherwise it prints a line now and then.
 */
export function openMeter(total: number | null, first: string): Meter {
  if (!process.stderr.isTTY || total === null) {
    const line = openProgress();
    return { show: (_, text) => line(text), end: () => {} };
  }
  const bar = progress({ max: total, size: 40, output: process.stderr });
  bar.start(first);
  let shown = 0;
  return {
    show(done, text) {
      bar.advance(Math.max(0, done - shown), text);
      shown = Math.max(shown, done);
    },
    end: (text) => bar.stop(text),
  };
}
