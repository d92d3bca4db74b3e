/**
 * The forms in which a text could be leaked: as it is, escaped for a URL or for JSON, and in base64,
 * wherever in a longer text it stood.
 */
export function formsOf(text: string): string[] {
  const base64 = [0, 1, 2].map((offset) => {
    const encoded = Buffer.from(" ".repeat(offset) + text).toString("base64");
    // The first and the last characters depend on what stands around it.
    return encoded.slice(offset === 0 ? 0 : 4, -4);
  });
  const escaped = JSON.stringify(text).slice(1, -1);
  return [text, encodeURIComponent(text), escaped, ...base64];
}

/** The canaries that are found in a text, by their names. */
export function canariesIn(text: string, canaries: Record<string, string>): string[] {
  return Object.entries(canaries)
    .filter(([, canary]) => formsOf(canary).some((form) => text.includes(form)))
    .map(([name]) => name);
}
