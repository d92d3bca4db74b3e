/**
 * How often a property runs. `FUZZ_SEED` runs a failure again, and with `FUZZ_PATH` only that: as
 * fast-check prints them.
 */
export function replayable(numRuns: number) {
  const { FUZZ_SEED: seed, FUZZ_PATH: path } = process.env;
  return { numRuns, ...(seed ? { seed: Number(seed) } : {}), ...(path ? { path } : {}) };
}
