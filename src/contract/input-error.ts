/** An input is wrong: the message says what and where, in one line, without the value. */
export class InputError extends Error {}

/** An input names what is not there. */
export class UnknownInput extends InputError {
  /** Where the name stands in the input, such as `webhookId` or `eventIds[0]`. */
  readonly parameter: string;

  constructor(parameter: string, message: string) {
    super(`${parameter}: ${message}`);
    this.parameter = parameter;
  }
}
