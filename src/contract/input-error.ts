/** Invalid input. The message says in one line what is wrong and where, without the value. */
export class InputError extends Error {}

/** The input refers to something that does not exist. */
export class UnknownInput extends InputError {
  /** Where in the input, such as `webhookId` or `eventIds[0]`. */
  readonly parameter: string;

  constructor(parameter: string, message: string) {
    super(`${parameter}: ${message}`);
    this.parameter = parameter;
  }
}

/**
 * Makes every method of a door say its name at the beginning of what it refuses, as `readInput` does:
 * a log shows the message alone, and one that holds "no such workspace" would not say whose call it was.
 *
 * @param prototype that of the door's class.
 */
export function nameRefusals(prototype: object): void {
  for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
    const method: unknown = property.value;
    if (typeof method !== "function" || name === "constructor") continue;
    const named = async function (this: unknown, ...input: unknown[]) {
      try {
        return await method.apply(this, input);
      } catch (error) {
        if (!(error instanceof InputError) || error.message.startsWith(`${name}: `)) throw error;
        throw new InputError(`${name}: ${error.message}`);
      }
    };
    Object.defineProperty(prototype, name, { ...property, value: named });
  }
}
