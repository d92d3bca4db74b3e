import { isUtf8 } from "node:buffer";
import { createReadStream, statSync } from "node:fs";
import { Readable } from "node:stream";

/** A line is invalid: nothing in the same call is recorded. */
export class LineError extends Error {
  readonly number: number;

  constructor(number: number, fault: string) {
    super(`line ${number}: ${fault}`);
    this.number = number;
  }
}

/** Opens an input, a file or standard input (`-`), so that it can be read several times. */
export async function openInput(file: string): Promise<() => Readable> {
  if (file !== "-" && statSync(file).isFile()) return () => createReadStream(file);
  // A pipe can be read once only.
  const input: Readable = file === "-" ? process.stdin : createReadStream(file);
  const chunks: Buffer[] = await input.toArray();
  return () => Readable.from(chunks);
}

/**
 * Reads the lines of an input, without its byte order marks. A line ends at a line feed only, because JSON may contain
 * other characters that end lines, such as U+2028.
 *
 * @throws LineError for a line that is not UTF-8. Decoded nevertheless, it would be recorded with U+FFFD.
 */
export async function* readLines(input: Readable): AsyncGenerator<string> {
  let number = 0;
  let parts: Buffer[] = [];
  const toLine = (): string => {
    number++;
    const bytes = Buffer.concat(parts);
    parts = [];
    if (!isUtf8(bytes)) throw new LineError(number, "not UTF-8: convert the file first");
    // There may be several marks, because files can be concatenated.
    return bytes.toString("utf8").replace(/^\uFEFF/, "");
  };
  for await (const chunk of input as AsyncIterable<Buffer>) {
    let start = 0;
    for (let end = chunk.indexOf("\n"); end !== -1; end = chunk.indexOf("\n", start)) {
      parts.push(chunk.subarray(start, end));
      yield toLine();
      start = end + 1;
    }
    parts.push(chunk.subarray(start));
  }
  yield toLine();
}
