/**
 * How often a property is checked. `FUZZ_SEED` replays a failure, and with `FUZZ_PATH` only that
 * one, as fast-check prints them.
 */
export function replayable(numRuns: number) {
  const { FUZZ_SEED: seed, FUZZ_PATH: path } = process.env;
  return { numRuns, ...(seed ? { seed: Number(seed) } : {}), ...(path ? { path } : {}) };
}
