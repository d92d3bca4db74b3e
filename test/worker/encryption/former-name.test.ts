import { expect, test } from "vitest";
import { refuseFormerName } from "../../../src/encryption/former-name.ts";

test("a secret under its former name is refused with a sentence that says what to rename", () => {
  expect(() => refuseFormerName((name) => name === "WEBHOOK_ENCRYPTION_KEYS")).toThrow(
    "WEBHOOK_ENCRYPTION_KEYS is now called ENCRYPTION_KEYS: rename it, and keep its value.",
  );
  expect(() => refuseFormerName((name) => name === "ENCRYPTION_KEYS")).not.toThrow();
});
