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
