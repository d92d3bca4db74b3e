/**
 * Loads the Worker's main module once. By default, each request, RPC and batch that enters the Worker or one of its
 * objects asks Vite where that module is, in Node and over a WebSocket, which takes a quarter of all tests' time. The
 * answer never changes, because files share their modules (`isolate: false`).
 */
declare const __vitest_mocker__: { moduleRunner: ModuleRunner };
interface ModuleRunner {
  import: (path: string) => Promise<unknown>;
  /** The main module, once something has entered the Worker. */
  main?: Promise<unknown>;
}

const MAIN = "/scripts/shared/limited-worker.ts";
const { moduleRunner } = __vitest_mocker__;
// This file is a set-up of each test file.
if (!Object.hasOwn(moduleRunner, "import")) {
  const load = moduleRunner.import.bind(moduleRunner);
  moduleRunner.import = (path) => {
    if (!path.endsWith(MAIN)) return load(path);
    moduleRunner.main ??= load(path);
    return moduleRunner.main;
  };
}
