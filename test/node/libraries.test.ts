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

/**
 * How to run the function of the guide, with the body on stdin, and the secret and headers as arguments. The program
 * prints a 1 for each header that makes the delivery genuine, and a 0 for another one.
 */
interface Runner {
  file: string;
  /** Calls the function; follows its code in the file, unless it has a file of its own. */
  call: string;
  callIn?: string;
  /** Succeeds if the language finds its library; also prepares a project, where a language needs one. */
  probe: string[];
  /** Compiles the file, where the language needs it. */
  build?: string[];
  run: string[];
}

/** Compiles C# with Mono, which looks for libraries in `MONO_PATH` only when it runs a program. */
const MCS = `mcs -lib:"${process.env.MONO_PATH?.split(":")[0] ?? ""}" -r:Stripe.net.dll`;

const RUNNERS: Record<string, Runner> = {
  Node: {
    file: "verify.ts",
    call: `
import { readFileSync } from "node:fs";
const [, , secret = "", ...headers] = process.argv;
const body = readFileSync(0);
for (const header of headers) process.stdout.write(verify(body, header, secret) ? "1" : "0");`,
    probe: [process.execPath, "--input-type=module", "-e", "import 'stripe'"],
    run: [process.execPath, "--no-warnings", "verify.ts"],
  },
  Python: {
    file: "verify.py",
    call: `
import sys
_, secret, *headers = sys.argv
body = sys.stdin.buffer.read()
for header in headers:
    print("1" if verify(body, header, secret) else "0", end="")`,
    // Debian's packages are those of its own Python.
    probe: ["/usr/bin/python3", "-c", "import stripe"],
    run: ["/usr/bin/python3", "verify.py"],
  },
  PHP: {
    file: "verify.php",
    call: `
ini_set('display_errors', 'stderr');
[, $secret] = $argv;
$body = stream_get_contents(STDIN);
foreach (array_slice($argv, 2) as $header) echo Verifier::verify($body, $header, $secret) ? '1' : '0';`,
    probe: ["php", "-r", "exit(stream_resolve_include_path('vendor/autoload.php') ? 0 : 1);"],
    run: ["php", "verify.php"],
  },
  Go: {
    file: "verify.go",
    callIn: "main.go",
    call: `package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	body, _ := io.ReadAll(os.Stdin)
	for _, header := range os.Args[2:] {
		fmt.Print(map[bool]string{true: "1", false: "0"}[verify(body, header, os.Args[1])])
	}
}
`,
    // What was downloaded before is there without a network.
    probe: [
      "sh",
      "-c",
      'go mod init verify && GOPROXY="file://$(go env GOMODCACHE)/cache/download" go get github.com/stripe/stripe-go/v82',
    ],
    build: ["go", "build", "-o", "verify"],
    run: ["./verify"],
  },
  Java: {
    file: "Verifier.java",
    call: `
class Main {
    public static void main(String[] args) throws java.io.IOException {
        byte[] body = System.in.readAllBytes();
        for (int i = 1; i < args.length; i++)
            System.out.print(Verifier.verify(body, args[i], args[0]) ? "1" : "0");
    }
}`,
    probe: ["javap", "com.stripe.net.Webhook"],
    build: ["javac", "-d", ".", "Verifier.java"],
    run: ["sh", "-c", 'CLASSPATH=".:$CLASSPATH" exec java Main "$@"', "sh"],
  },
  Ruby: {
    file: "verify.rb",
    call: `
secret, *headers = ARGV
body = $stdin.binmode.read
headers.each { |header| print(verify(body, header, secret) ? "1" : "0") }`,
    probe: ["ruby", "-r", "stripe", "-e", ""],
    run: ["ruby", "verify.rb"],
  },
  "C#": {
    file: "Verifier.cs",
    call: `
static class Program
{
    static void Main(string[] args)
    {
        var body = new System.IO.MemoryStream();
        Console.OpenStandardInput().CopyTo(body);
        for (var i = 1; i < args.Length; i++)
            Console.Write(Verifier.Verify(body.ToArray(), args[i], args[0]) ? "1" : "0");
    }
}`,
    probe: ["sh", "-c", `echo 'class P { static void Main() {} }' > p.cs && ${MCS} p.cs`],
    build: ["sh", "-c", `${MCS} -out:verify.exe Verifier.cs`],
    run: ["mono", "verify.exe"],
  },
};

test("the guide shows a function for each language that has a runner", () => {
  const [shown = ""] = GUIDE.split("\n## ");
  expect([...shown.matchAll(/^### (.*)$/gm)].map(([, name]) => name)).toEqual(Object.keys(RUNNERS));
});

/** Those whose library rejects a timestamp in the future, as the guide says. */
const REJECT_THE_FUTURE = /Only the functions in (.*) and (.*) reject/.exec(GUIDE)?.slice(1) ?? [];

for (const [language, runner] of Object.entries(RUNNERS)) {
  const place = join(folder, language);
  mkdirSync(place);
  const start = ([program = "", ...args]: string[], input = "") =>
    spawnSync(program, args, { cwd: place, input, encoding: "utf8" });
  // Only Node has its library everywhere.
  const isMissing = start(runner.probe).status !== 0 && language !== "Node";
  const note = isMissing ? " (skipped: its library is not installed)" : "";
  test.skipIf(isMissing)(
    `the function of the guide in ${language} accepts a genuine delivery only${note}`,
    async () => {
      const [, code = ""] =
        new RegExp(`^### ${language}\\n\\n\`\`\`\\w+\\n(.*?)\`\`\``, "ms").exec(GUIDE) ?? [];
      const { file, call, callIn, build, run } = runner;
      writeFileSync(join(place, file), callIn ? code : code + call);
      if (callIn) writeFileSync(join(place, callIn), call);
      if (build) expect(start(build)).toMatchObject({ status: 0, stderr: "" });

      const secret = mintSecret();
      const body = JSON.stringify({ id: "evt_1", type: "lead.created", data: { name: "Zoë" } });
      const sign = async (by: string, minutes = 0) => {
        const headers = await signatureHeaders(by, "evt_1", body, Date.now() + minutes * 60_000);
        return String(headers["X-Service-Signature"]);
      };
      const verify = (sent: string, headers: string[]) => {
        const { status, stdout } = start([...run, secret, ...headers], sent);
        return [status, stdout];
      };
      const genuine = await sign(secret);
      const rotated = genuine.replace(",", `,v1=${"0".repeat(64)},`);
      const [now = ""] = genuine.split(",");
      const malformed = ["", "t", "v1", "t=x,v1=y", `${now},v1`, now];
      const rejected = [await sign(mintSecret()), await sign(secret, -10), ...malformed];
      expect(verify(body, [genuine, rotated, ...rejected])).toEqual([0, "1100000000"]);
      expect(verify(body.replace("Zoë", "Zoé"), [genuine])).toEqual([0, "0"]);
      const isRejected = REJECT_THE_FUTURE.includes(language);
      expect(verify(body, [await sign(secret, 10)])).toEqual([0, isRejected ? "0" : "1"]);
    },
    60_000,
  );
}
