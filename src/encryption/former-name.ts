const FORMER_NAME = "WEBHOOK_ENCRYPTION_KEYS";

/** @throws Error that says what to rename if `isSet` knows a secret by a name that it no longer has. */
export function refuseFormerName(isSet: (name: string) => boolean): void {
  if (isSet(FORMER_NAME))
    throw new Error(`${FORMER_NAME} is now called ENCRYPTION_KEYS: rename it, and keep its value.`);
}
