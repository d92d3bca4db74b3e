/**
 * The forms in which a text could leak: as it is, escaped for a URL or for JSON, and in base64 with
 * both alphabets, at any offset in a longer text.
 */
export function formsOf(text: string): string[] {
  const bytes = Buffer.from(text);
  const base64 = [0, 1, 2].flatMap((offset) => {
    const encoded = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    // 6 bits each, and only those not affected by the surrounding text.
    const own = encoded.slice(
      Math.ceil((offset * 8) / 6),
      Math.floor(((offset + bytes.length) * 8) / 6),
    );
    return [own, own.replaceAll("+", "-").replaceAll("/", "_")];
  });
  const escaped = JSON.stringify(text).slice(1, -1);
  return [...new Set([text, encodeURIComponent(text), escaped, ...base64])];
}

/** The names of the canaries found in a text. */
export function canariesIn(text: string, canaries: Record<string, string>): string[] {
  return Object.entries(canaries)
    .filter(([, canary]) => formsOf(canary).some((form) => text.includes(form)))
    .map(([name]) => name);
}

/**
 * Prefixes of keys and secrets, and the names and URL parts that tests use for people and
 * subscribers.
 */
const CANARIES = [
  ...["key_live_", "whsec_", "token=t0ken"],
  ...["Zoë “", "Camille Durand", "+33600000000"],
  ...["zoe@example.com", "camille@example.com", "camille.durand@example.com"],
  ...["admin@example.com", "chef@example.com"],
];

const FORMS = CANARIES.flatMap(formsOf);

/** Whether a log line contains what no log may contain. */
export function holdsCanary(line: string): boolean {
  return FORMS.some((form) => line.includes(form));
}
