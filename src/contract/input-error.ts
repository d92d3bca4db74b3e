/** An input is wrong: the message says what and where, in one line, without the value. */
export class InputError extends Error {}
