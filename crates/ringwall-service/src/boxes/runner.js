// Runs cells of code in one persistent interpreter: a cell sees what earlier cells have declared.
//
// Requests and answers are lines of JSON on descriptor 3; the output of a cell goes to 1 and 2
// without buffering. Cells share this process and can change all of it, so the server validates
// every answer.
'use strict';
{
  const { createRequire } = require('node:module');
  const { Socket } = require('node:net');
  const { inspect } = require('node:util');
  const { Script } = require('node:vm');
  const { stringify, parse } = JSON;

  const LONGEST_TEXT = 64 * 1024;
  const LARGEST_RESULT = 4 * 1024 * 1024;
  const LARGEST_ANSWER = 8 * 1024 * 1024;
  const MOST_RESULTS = 32;
  const DEEPEST = 64;
  const channel = new Socket({ fd: 3, readable: true, writable: true });
  let count = 0;
  let results = [];
  let room = 0;
  let interrupt = () => {};

  // The server accepts only a limited nesting depth.
  const isShallow = (value, left) =>
    value === null || typeof value !== 'object' || (left > 0 && Object.values(value).every((each) => isShallow(each, left - 1)));

  const show = (value) => {
    const bundle = { 'text/plain': inspect(value).slice(0, LONGEST_TEXT) };
    const isPlain = Array.isArray(value) || (value && Object.getPrototypeOf(value) === Object.prototype);
    if (isPlain) {
      try {
        const text = stringify(value);
        if (text !== undefined && Buffer.byteLength(text) <= LARGEST_RESULT && isShallow(value, DEEPEST)) bundle['application/json'] = parse(text);
      } catch {
        // Not representable in JSON: a cycle, or a BigInt.
      }
    }
    const size = Buffer.byteLength(stringify(bundle));
    if (results.length < MOST_RESULTS && size <= room) {
      room -= size;
      results.push(bundle);
    }
  };

  const describe = (raised) => {
    const isError = raised instanceof Error;
    const frames = isError ? String(raised.stack).split('\n') : [`Uncaught ${inspect(raised)}`];
    const own = frames.findIndex((line) => line.includes('[eval]') || line.includes('node:'));
    const told = (own > 0 ? frames.slice(0, own) : frames).join('\n').slice(0, LONGEST_TEXT);
    process.stderr.write(`${told}\n`);
    const name = isError ? String(raised.name) : typeof raised;
    return { name, value: String(isError ? raised.message : raised).slice(0, LONGEST_TEXT), traceback: told };
  };

  const stopped = () => Object.assign(new Error('the cell was interrupted'), { name: 'Interrupted' });

  const evaluate = async (code) => {
    const filename = `cell${count}.js`;
    let script;
    try {
      script = new Script(code, { filename });
    } catch (error) {
      // A script cannot await. An async function can, but its variables are not visible to later cells.
      if (!/\bawait\b/.test(code)) throw error;
      script = new Script(`(async () => {${code}\n})()`, { filename });
    }
    let value;
    try {
      value = script.runInThisContext({ breakOnSigint: true, displayErrors: false });
    } catch (error) {
      throw error && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? stopped() : error;
    }
    const halt = new Promise((_, reject) => (interrupt = () => reject(stopped())));
    value = await Promise.race([value, halt]);
    if (value !== undefined) show(value);
  };

  const run = async (code) => {
    count += 1;
    results = [];
    room = LARGEST_ANSWER;
    let error = null;
    try {
      await evaluate(code);
    } catch (raised) {
      error = describe(raised);
    }
    interrupt = () => {};
    return { results, error };
  };

  globalThis.require = createRequire(`${process.cwd()}/`);
  globalThis.display = (...values) => values.forEach(show);
  process.on('SIGINT', () => interrupt());
  for (const late of ['uncaughtException', 'unhandledRejection']) {
    process.on(late, (raised) => describe(raised));
  }

  let held = '';
  let turn = Promise.resolve();
  channel.setEncoding('utf8');
  channel.on('data', (text) => {
    held += text;
    for (let end = held.indexOf('\n'); end >= 0; end = held.indexOf('\n')) {
      const request = parse(held.slice(0, end));
      held = held.slice(end + 1);
      turn = turn.then(async () => {
        const answer = await run(request.code);
        channel.write(`${stringify({ id: request.id, ...answer })}\n`);
      });
    }
  });
  channel.on('error', () => process.exit(0));
  channel.on('end', () => process.exit(0));
}
