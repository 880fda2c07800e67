// The conformance suite imports fs.globSync, which Node 20 does not have, but does not call it in the checks run here. On such a
// Node this module provides a globSync that throws.
import { register } from "node:module";
import * as fs from "node:fs";

const shim = `export * from "node:fs"; export { default } from "node:fs"; export function globSync() { throw new Error("no globSync"); }`;
const hooks = `const shim = "data:text/javascript," + encodeURIComponent(${JSON.stringify(shim)});
export const resolve = (name, context, next) =>
    name === "fs" && context.parentURL?.includes("/conformance/dist/") ? { url: shim, shortCircuit: true } : next(name, context);`;
if (!fs.globSync) register("data:text/javascript," + encodeURIComponent(hooks));
