/** Waits until `condition` holds; throws if it does not within `timeoutMs`, long enough for a busy machine. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 45_000,
): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
