/**
 * Waits until `condition` holds; throws if it does not within `timeoutMs`, long enough for a busy machine. It looks less
 * often the longer it has waited, because a look may cost several calls.
 */
export async function until(
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 45_000,
): Promise<void> {
  const startedAt = Date.now();
  while (!(await condition())) {
    const waitedMs = Date.now() - startedAt;
    if (waitedMs > timeoutMs) throw new Error(`not within ${timeoutMs} ms: ${condition}`);
    const pauseMs = Math.min(50 + waitedMs / 10, 250);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
