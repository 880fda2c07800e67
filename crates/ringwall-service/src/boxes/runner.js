// Runs cells of code in one interpreter that stays: what a cell declares is there in the next one.
//
// Requests and answers are lines of JSON on descriptor 3; what a cell prints goes to 1 and 2, which are written at once.
// The code that runs here shares this process and may change any of it: whoever reads the answers trusts nothing.
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

  // Whoever reads the answer goes only so deep.
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
        // It has no such form: a loop, or a number that JSON does not know.
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
      // A script cannot wait; a function can, at the price that its variables are its own.
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
