/*
 * Loads the Worker under test once for each test file. Each request, call and message imports it, and so does each
 * call of an object. Each import asks Vite in Node twice whether the module has changed, which takes longer than most
 * calls. The module does not change while the tests of a file run.
 */

interface ModuleRunner {
  import(id: string): Promise<unknown>;
}

declare const __vitest_mocker__: { moduleRunner: ModuleRunner };

const { moduleRunner } = __vitest_mocker__;
const load: ModuleRunner["import"] = Object.getPrototypeOf(moduleRunner).import;
let worker: unknown;

moduleRunner.import = async (id) => {
  if (!id.endsWith("/scripts/shared/limited-worker.ts")) return load.call(moduleRunner, id);
  worker ??= await load.call(moduleRunner, id);
  return worker;
};
