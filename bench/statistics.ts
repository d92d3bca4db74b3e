/** Returns the `q`-quantile (0 to 1) of the samples; NaN without samples. */
export function quantile(samples: number[], q: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}

export function median(samples: number[]): number {
  return quantile(samples, 0.5);
}
