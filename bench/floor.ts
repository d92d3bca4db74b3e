/**
 * The baseline of the framework's share: a bare handler over the same gate, tables and Platform
 * API.
 */
import { answerBare } from "./handlers.ts";

export { AddressGate, KeyGate, Platform } from "../src/index.ts";

export default {
  fetch: answerBare,
  queue: (batch) => batch.ackAll(),
} satisfies ExportedHandler<Env>;
