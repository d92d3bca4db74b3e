import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { mintSecret, signatureHeaders } from "../../src/endpoints/signature.ts";

const GUIDE = readFileSync(join(ROOT, "site/guides/libraries.md"), "utf8");

// Below the checkout, where Node finds the library.
mkdirSync(join(ROOT, "dist"), { recursive: true });
const folder = mkdtempSync(join(ROOT, "dist/libraries-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** A program that calls the function of the guide with a body and a header, and exits with 0 if it returns true. */
interface Runner {
  file: string;
  /** The programs that may run it; the first one that has the library does. */
  programs: string[];
  /** Whether the library is there, as arguments of the program. */
  probe: string[];
  /** What calls the function, after its code. */
  call: string;
}

const RUNNERS: Record<string, Runner> = {
  Node: {
    file: "verify.ts",
    programs: [process.execPath],
    probe: ["--input-type=module", "-e", "import 'stripe'"],
    call: `
import { readFileSync } from "node:fs";
process.exit(verify(readFileSync(0), process.argv[2] ?? "") ? 0 : 1);`,
  },
  Python: {
    file: "verify.py",
    programs: ["python3", "/usr/bin/python3"],
    probe: ["-c", "import stripe"],
    call: `
import sys
sys.exit(0 if verify(sys.stdin.buffer.read(), sys.argv[1]) else 1)`,
  },
  PHP: {
    file: "verify.php",
    programs: ["php"],
    probe: ["-r", "exit(file_exists('vendor/autoload.php') ? 0 : 1);"],
    call: `
exit(verify(stream_get_contents(STDIN), $argv[1]) ? 0 : 1);`,
  },
};

for (const [language, { file, programs, probe, call }] of Object.entries(RUNNERS)) {
  const program = programs.find((one) => spawnSync(one, probe, { cwd: ROOT }).status === 0) ?? "";
  // Only Node has it everywhere.
  const isMissing = program === "" && language !== "Node";
  const note = isMissing ? " (skipped: its library is not installed)" : "";
  test.skipIf(isMissing)(
    `the function of the guide in ${language} accepts a genuine delivery only${note}`,
    async () => {
      const [, code = ""] =
        new RegExp(`^### ${language}\\n\\n\`\`\`\\w+\\n(.*?)\`\`\``, "ms").exec(GUIDE) ?? [];
      const path = join(folder, file);
      writeFileSync(path, code + call);
      const secret = mintSecret();
      const body = JSON.stringify({ id: "evt_1", type: "lead.created", data: { name: "Zoë" } });
      const verify = async (by: string, minutes = 0) => {
        const signed = await signatureHeaders(by, "evt_1", body, Date.now() + minutes * 60_000);
        const { status, stderr } = spawnSync(
          program,
          [path, String(signed["X-Service-Signature"])],
          {
            cwd: ROOT,
            input: body,
            env: { ...process.env, WEBHOOK_SECRET: secret, NODE_NO_WARNINGS: "1" },
          },
        );
        return [status, String(stderr)];
      };
      expect(await verify(secret)).toEqual([0, ""]);
      expect(await verify(mintSecret())).toEqual([1, ""]);
      expect(await verify(secret, -10)).toEqual([1, ""]);
    },
  );
}
