//! The rules for JavaScript, as data.

use crate::level::Level::{Critical, High, Medium};
use crate::rule::Rule;

pub(super) static RULES: &[Rule] = &[
    Rule::new("js.exec.eval", Critical, "Evaluates text as code (eval).", "将文本作为代码求值（eval）。", "eval")
        .shown_by(
            &[
                "eval('1')",
                "(0, eval)('1')",
                "globalThis['ev' + 'al']('1')",
                "const e = eval; e('1')",
                "\\u0065val('1')",
            ],
            &["model.eval()", "'eval(1)'", "// eval(1)", "function eval(x) {}\neval(1)", "({ eval: 1 })"],
        ),
    Rule::new(
        "js.exec.function",
        Critical,
        "Creates a function from text.",
        "用文本动态创建函数。",
        "Function AsyncFunction GeneratorFunction Object.getPrototypeOf().constructor",
    )
    .called()
    .shown_by(
        &[
            "new Function('return 1')",
            "Function('x')()",
            "[].map.constructor.constructor('x')()",
            "(() => {}).constructor('x')",
            "const f = Function.prototype.constructor; f('x')",
            "function g() {}\ng.constructor('x')",
        ],
        &[
            "x instanceof Function",
            "class A { constructor() {} }",
            "new Functional()",
            "function A() {}\nnew A.prototype.constructor()",
        ],
    ),
    Rule::new(
        "js.exec.vm",
        Critical,
        "Runs text as code in another context (vm).",
        "在其他上下文中执行文本代码（vm）。",
        "vm.* vm2.* vm2 isolated-vm.* repl.start module._compile ..runInThisContext",
    )
    .called()
    .shown_by(
        &["require('vm').runInThisContext('1')", "import { Script } from 'node:vm'; new Script('1')"],
        &["vm.start", "machine.runIn('x')"],
    ),
    Rule::new(
        "js.exec.timer",
        Critical,
        "Passes text to a timer, which runs it as code.",
        "将文本交给定时器作为代码执行。",
        "",
    )
    .shown_by(&["setTimeout('x()', 1)"], &["setTimeout(() => x(), 1)", "setTimeout(f, 1)"]),
    Rule::new(
        "js.exec.computed",
        Critical,
        "Calls a function by a name that is known only at run time.",
        "按运行时才确定的名称调用函数。",
        "globalThis[] global[] window[] self[] child_process[]",
    )
    .called()
    .shown_by(
        &["globalThis[x]('1')", "require('child_process')[f]('ls')"],
        &["table[x]('1')", "console.log(window[x])"],
    ),
    Rule::new(
        "js.process.spawn",
        Critical,
        "Starts another process.",
        "启动其他进程。",
        "child_process.exec* child_process.spawn* child_process.fork execa execa.* shelljs.exec \
         cross-spawn cross-spawn.* cluster.fork Bun.spawn* Deno.Command Deno.run zx.$ \
         process.binding node-pty.spawn",
    )
    .shown_by(
        &[
            "require('child_process').exec('ls')",
            "const { execSync: e } = require('node:child_process'); e('ls')",
            "import('child_process').then(c => c.spawn('ls'))",
            "function f() { return require('child_process'); }\nf().exec('ls')",
            "const f = () => require('child_process'); f().exec('ls')",
        ],
        &["/x/.exec('y')", "require('child_process')", "regex.exec(text)", "pool.spawn()"],
    ),
    Rule::new(
        "js.delete.everything",
        Critical,
        "Deletes the whole file system or a home directory.",
        "删除整个文件系统或用户主目录。",
        "",
    )
    .refused()
    .shown_by(&["require('fs').rmSync('/', { recursive: true })"], &["require('fs').rmSync('dist')"]),
    Rule::new(
        "js.delete.files",
        High,
        "Deletes files or directories.",
        "删除文件或目录。",
        "fs..rm fs..rmSync fs..rmdir fs..rmdirSync fs..unlink fs..unlinkSync fs..truncate \
         fs..truncateSync fs-extra..remove fs-extra..removeSync fs-extra..emptyDir \
         fs-extra..emptyDirSync rimraf rimraf.* del shelljs.rm Deno.remove*",
    )
    .shown_by(
        &[
            "require('fs').unlinkSync('x')",
            "import { rm } from 'fs/promises'; await rm('x')",
            "import fs from 'fs'; fs.promises.unlink('x')",
        ],
        &["map.delete('x')", "list.rm('x')", "require('fs').readFileSync('x')"],
    ),
    Rule::new(
        "js.network.client",
        High,
        "Uses the network.",
        "使用网络。",
        "fetch http.request http.get https.request https.get http2.connect axios axios.* node-fetch \
         got got.* undici.* superagent.* request request.* needle.* net.connect \
         net.createConnection net.Socket tls.connect dgram.createSocket dns.* ws ws.* WebSocket \
         XMLHttpRequest EventSource navigator.sendBeacon nodemailer.* socket.io-client \
         socket.io-client.* mongodb..connect pg.Client pg.Pool redis.createClient \
         mysql.createConnection puppeteer.launch openai ssh2.Client aws-sdk.* ky ky.*",
    )
    .called()
    .shown_by(
        &[
            "fetch('https://x')",
            "const a = require('axios'); a.get('x')",
            "import https from 'node:https'; https.get('x')",
            "new WebSocket('ws://x')",
        ],
        &["const fetch = () => 1; fetch()", "cache.fetch('x')", "map.get('x')", "'fetch(1)'"],
    ),
    Rule::new(
        "js.network.server",
        High,
        "Listens on the network.",
        "监听网络端口。",
        "http.createServer https.createServer http2.createServer http2.createSecureServer \
         net.createServer tls.createServer express..listen fastify..listen koa..listen ws.Server \
         ws.WebSocketServer socket.io socket.io.Server Bun.serve Deno.serve Deno.listen",
    )
    .called()
    .shown_by(
        &["require('http').createServer(f)", "const e = require('express'); const app = e(); app.listen(1)"],
        &["store.listen(f)", "require('express')()"],
    ),
    Rule::new(
        "js.native",
        High,
        "Loads native code.",
        "加载原生代码。",
        "process.dlopen ffi-napi.* ref-napi.* koffi.load Deno.dlopen Bun.FFI.*",
    )
    .called()
    .shown_by(&["process.dlopen(m, 'x')"], &["library.dlopen('x')"]),
    Rule::new(
        "js.unserialize",
        High,
        "Loads data that can run code during loading.",
        "加载可能执行代码的序列化数据。",
        "node-serialize.unserialize v8.deserialize serialize-javascript.* funcster.*",
    )
    .called()
    .shown_by(&["require('node-serialize').unserialize(x)"], &["JSON.parse(x)", "store.unserialize(x)"]),
    Rule::new(
        "js.signal",
        High,
        "Sends signals to processes.",
        "向进程发送信号。",
        "process.kill process.abort Deno.kill",
    )
    .shown_by(&["process.kill(1)"], &["child.kill()", "process.exit(1)"]),
    Rule::new(
        "js.permission",
        High,
        "Changes permissions, owners or its own rights.",
        "更改权限、属主或自身身份。",
        "fs..chmod fs..chmodSync fs..chown fs..chownSync fs..lchown process.setuid process.setgid \
         process.seteuid process.setgroups Deno.chmod* Deno.chown*",
    )
    .shown_by(&["require('fs').chmodSync('x', 511)"], &["door.chmod(1)"]),
    Rule::new(
        "js.import.computed",
        High,
        "Loads a module whose name is known only at run time.",
        "加载运行时才确定名称的模块。",
        "",
    )
    .shown_by(&["require(name)", "import(x)"], &["require('util')", "import('./x.js')", "lib.require(name)"]),
    Rule::new(
        "js.import.system",
        Medium,
        "Loads a module with access to system resources.",
        "加载可访问系统资源的模块。",
        "fs fs.* fs-extra child_process net http https http2 tls dgram dns vm cluster \
         worker_threads axios node-fetch got undici ws express fastify koa shelljs execa puppeteer \
         playwright rimraf inspector repl v8 process module",
    )
    .imported()
    .shown_by(
        &["require('fs')", "import x from 'node:http'", "await import('child_process')"],
        &["require('path')", "import x from './fs.js'", "'require(fs)'"],
    ),
    Rule::new(
        "js.file.write",
        Medium,
        "Writes files.",
        "写入文件。",
        "fs..writeFile fs..writeFileSync fs..appendFile fs..appendFileSync fs..createWriteStream \
         fs..mkdir fs..mkdirSync fs..copyFile fs..copyFileSync fs..rename fs..renameSync fs..cp \
         fs..cpSync fs..symlink fs..symlinkSync fs..write fs..writeSync fs-extra..outputFile \
         fs-extra..copy better-sqlite3 sqlite3.Database Deno.write* Bun.write localStorage.setItem",
    )
    .shown_by(
        &["require('fs').writeFileSync('x', 'y')", "import { writeFile as w } from 'fs/promises'; w('x', 'y')"],
        &["out.writeFile('x')", "process.stdout.write('x')"],
    ),
    Rule::new(
        "js.file.read",
        Medium,
        "Reads files.",
        "读取文件。",
        "fs..readFile fs..readFileSync fs..createReadStream fs..readdir fs..readdirSync fs..stat \
         fs..statSync fs..existsSync fs..access fs..accessSync fs..open fs..openSync fs..watch \
         Deno.read* Bun.file",
    )
    .shown_by(
        &["require('fs').readFileSync('x')", "const fs = require('fs').promises; fs.readFile('x')"],
        &["reader.readFile('x')"],
    ),
    Rule::new(
        "js.environment",
        Medium,
        "Reads or changes environment variables.",
        "读取或更改环境变量。",
        "process.env dotenv.* Deno.env Bun.env",
    )
    .shown_by(
        &["process.env.HOME", "const { env } = process; env.X", "require('dotenv').config()"],
        &["app.process.env", "process.argv"],
    ),
    Rule::new(
        "js.syntax",
        Medium,
        "Cannot be parsed completely as JavaScript.",
        "无法完整解析为 JavaScript 代码。",
        "",
    )
    .shown_by(&["const = 1", "f(("], &["const x = 1", ""]),
    Rule::new(
        "js.too_complex",
        High,
        "Is too large or too complex to be assessed.",
        "内容过大或过于复杂，无法判断。",
        "",
    ),
];
