/**
 * The forms in which a text could be leaked: as it is, escaped for a URL or for JSON, and in base64 of
 * both alphabets, wherever in a longer text it stood.
 */
export function formsOf(text: string): string[] {
  const bytes = Buffer.from(text);
  const base64 = [0, 1, 2].flatMap((offset) => {
    const encoded = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    // Of 6 bits each, and only those that nothing around it has a part in.
    const own = encoded.slice(
      Math.ceil((offset * 8) / 6),
      Math.floor(((offset + bytes.length) * 8) / 6),
    );
    return [own, own.replaceAll("+", "-").replaceAll("/", "_")];
  });
  const escaped = JSON.stringify(text).slice(1, -1);
  return [...new Set([text, encodeURIComponent(text), escaped, ...base64])];
}

/** The canaries that are found in a text, by their names. */
export function canariesIn(text: string, canaries: Record<string, string>): string[] {
  return Object.entries(canaries)
    .filter(([, canary]) => formsOf(canary).some((form) => text.includes(form)))
    .map(([name]) => name);
}

/** How keys and secrets begin, and what tests call people and put into the URLs of subscribers. */
const CANARIES = [
  ...["key_live_", "whsec_", "token=t0ken"],
  ...["Zoë “", "Camille Durand", "+33600000000"],
  ...["zoe@example.com", "camille@example.com", "camille.durand@example.com"],
  ...["admin@example.com", "chef@example.com"],
];

const FORMS = CANARIES.flatMap(formsOf);

/** Whether a line that was logged holds what no log may hold. */
export function holdsCanary(line: string): boolean {
  return FORMS.some((form) => line.includes(form));
}
