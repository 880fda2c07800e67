//! The rules for Python, as data.

use crate::level::Level::{Critical, High, Medium};
use crate::rule::Rule;

pub(super) static RULES: &[Rule] = &[
    Rule::new("py.exec.eval", Critical, "Evaluates text as code (eval).", "将文本作为代码求值（eval）。", "eval")
        .shown_by(
            &["eval('1')", "f = eval", "import builtins as b\nb.eval('1')", "__builtins__['ev' + 'al']('1')"],
            &["model.eval()", "df.eval('a+b')", "'eval(1)'", "def eval(x): pass\neval(1)", "# eval(1)"],
        ),
    Rule::new(
        "py.exec.exec",
        Critical,
        "Runs text as code (exec).",
        "将文本作为代码执行（exec）。",
        "exec execfile runpy.* code.InteractiveInterpreter code.InteractiveConsole code.interact \
         types.CodeType types.FunctionType",
    )
    .shown_by(
        &[
            "exec('x = 1')",
            "@exec\nclass A: pass",
            "getattr(__builtins__, 'exec')('1')",
            "import runpy\nrunpy.run_path('x')",
        ],
        &["cursor.exec('x')", "class A:\n def exec(self): pass\nA().exec()", "print('exec(1)')"],
    ),
    Rule::new(
        "py.exec.compile",
        Critical,
        "Compiles text to code (compile).",
        "将文本编译为代码（compile）。",
        "compile",
    )
    .called()
    .shown_by(&["compile('1', 'x', 'exec')"], &["import re\nre.compile('x')", "model.compile(loss='mse')"]),
    Rule::new(
        "py.exec.computed",
        Critical,
        "Calls a function by a name that is known only at run time.",
        "按运行时才确定的名称调用函数。",
        "os[] subprocess[] builtins[] __builtins__[] posix[] pty[]",
    )
    .shown_by(
        &["import os\ngetattr(os, name)()", "__builtins__[x]('1')"],
        &["getattr(obj, name)", "import os\nos.environ[name]", "import os\nos.listdir('.')[0]"],
    ),
    Rule::new(
        "py.exec.namespace",
        Critical,
        "Calls a function of the global namespace by a name that is known only at run time.",
        "按运行时才确定的名称从全局命名空间调用。",
        "__main__[]",
    )
    .called()
    .shown_by(&["globals()[name]('x')"], &["print(globals()[name])", "table[name]('x')"]),
    Rule::new(
        "py.process.shell",
        Critical,
        "Runs a command through the shell.",
        "通过 shell 执行命令。",
        "os.system os.popen* posix.system commands.getoutput subprocess.getoutput \
         subprocess.getstatusoutput asyncio.create_subprocess_shell nt.system platform.popen",
    )
    .shown_by(
        &[
            "import os\nos.system('ls')",
            "from os import system as s\ns('ls')",
            "import os\ngetattr(os,'sys'+'tem')('x')",
            "def f():\n  import os\n  return os\nf().system('x')",
            "class A:\n  def m(self):\n    import os\n    return os\n  def go(self): self.m().system('x')",
        ],
        &[
            "host.system('x')",
            "import platform\nplatform.system()",
            "s = 'os.system(1)'",
            "def f():\n  return a\nf().system('x')",
        ],
    ),
    Rule::new(
        "py.process.spawn",
        Critical,
        "Starts another process.",
        "启动其他进程。",
        "os.exec* os.spawn* os.posix_spawn* os.fork os.forkpty os.startfile pty.spawn pty.fork \
         subprocess.run subprocess.call subprocess.check_call subprocess.check_output \
         subprocess.Popen asyncio.create_subprocess_exec asyncio..subprocess_exec pexpect.spawn \
         pexpect.run _posixsubprocess.* posix.fork posix.exec* plumbum.local sh.* invoke.run \
         fabric.* IPython.get_ipython().system",
    )
    .shown_by(
        &[
            "import subprocess as s\ns.run(['ls'])",
            "from subprocess import *\nPopen('ls')",
            "import os\nos.execv('/bin/sh', [])",
        ],
        &[
            "import subprocess\nsubprocess.PIPE",
            "app.run()",
            "import subprocess\ntry: f()\nexcept subprocess.CalledProcessError: pass",
        ],
    ),
    Rule::new(
        "py.delete.everything",
        Critical,
        "Deletes the whole file system or a home directory.",
        "删除整个文件系统或用户主目录。",
        "",
    )
    .refused()
    .shown_by(
        &["import shutil\nshutil.rmtree('/')", "import shutil, os\nshutil.rmtree(os.path.expanduser('~'))"],
        &["import shutil\nshutil.rmtree('build')", "import shutil, os\nshutil.rmtree(os.path.expanduser('~/tmp/x'))"],
    ),
    Rule::new(
        "py.delete.files",
        High,
        "Deletes files or directories.",
        "删除文件或目录。",
        "os.remove os.unlink os.rmdir os.removedirs shutil.rmtree pathlib..unlink pathlib..rmdir \
         send2trash.* posix.remove posix.unlink os.truncate",
    )
    .shown_by(
        &["import os\nos.remove('x')", "from pathlib import Path\nfor p in Path('a').glob('*'): p.unlink()"],
        &["items.remove(1)", "session.delete(x)", "link.unlink_all()"],
    ),
    Rule::new(
        "py.network.client",
        High,
        "Uses the network.",
        "使用网络。",
        "requests.* httpx.* urllib.request.* urllib3.* urllib2.* aiohttp.* http.client.* ftplib.* \
         smtplib.* poplib.* imaplib.* telnetlib.* paramiko.* websockets.* websocket.* \
         xmlrpc.client.* boto3.* socket.socket socket.create_connection socket.getaddrinfo \
         socket.gethostbyname* ssl.wrap_socket asyncio.open_connection psycopg2.connect \
         psycopg.connect pymysql.connect pymongo.MongoClient redis.Redis redis.StrictRedis openai.* \
         anthropic.* pip.main git.Repo.clone_from wget.* huggingface_hub.* selenium..Chrome \
         selenium..Firefox playwright..launch dns.resolver.* nltk.download webbrowser.* yfinance.* \
         tweepy.* docker.from_env kubernetes.*",
    )
    .called()
    .shown_by(
        &[
            "import requests\nrequests.get('x')",
            "from urllib import request as r\nr.urlopen('x')",
            "import requests\ns = requests.Session()\ns.post('x')",
            "import pandas as pd\nu = 'https://x/y.csv'\npd.read_csv(u)",
        ],
        &[
            "import pandas as pd\npd.read_csv('x.csv')",
            "from urllib.parse import quote\nquote('x')",
            "import requests\nrequests.exceptions.Timeout",
            "client.get('x')",
        ],
    ),
    Rule::new(
        "py.network.server",
        High,
        "Listens on the network.",
        "监听网络端口。",
        "flask..run uvicorn.run http.server.* socketserver.* wsgiref.simple_server.* \
         aiohttp.web.run_app waitress.serve socket.create_server asyncio.start_server \
         tornado..listen xmlrpc.server.* bottle.run gradio..launch dash..run dash..run_server \
         hypercorn.* sanic..run grpc.server",
    )
    .called()
    .shown_by(
        &["from flask import Flask\napp = Flask('x')\napp.run()", "import http.server as h\nh.HTTPServer(('',1),x)"],
        &["app.run()", "from flask import Flask\napp = Flask('x')"],
    ),
    Rule::new(
        "py.native",
        High,
        "Calls native code.",
        "绕过 Python 调用原生代码。",
        "ctypes.* cffi.* _ctypes.* os.dlopen mmap.mmap",
    )
    .called()
    .shown_by(
        &["import ctypes\nctypes.CDLL('x')", "from ctypes import cdll\ncdll.LoadLibrary('x')"],
        &["import ctypes", "ffi.dlopen_count"],
    ),
    Rule::new(
        "py.unpickle",
        High,
        "Loads data that can run code during loading.",
        "加载可能执行代码的序列化数据。",
        "pickle.load* pickle.Unpickler cPickle.load* _pickle.load* dill.load* cloudpickle.load* \
         marshal.load* shelve.open joblib.load pandas.read_pickle yaml.unsafe_load* yaml.full_load* \
         jsonpickle.decode",
    )
    .shown_by(
        &["import pickle\npickle.loads(x)", "import yaml\nyaml.load(x)", "import pandas as pd\npd.read_pickle('x')"],
        &[
            "import pickle\npickle.dumps(x)",
            "import yaml\nyaml.safe_load(x)",
            "import yaml\nyaml.load(x, Loader=yaml.SafeLoader)",
            "import json\njson.load(f)",
        ],
    ),
    Rule::new(
        "py.signal",
        High,
        "Sends signals to processes.",
        "向进程发送信号。",
        "os.kill os.killpg os.abort signal.pthread_kill signal.raise_signal \
         signal.pidfd_send_signal psutil..kill psutil..terminate psutil..send_signal posix.kill",
    )
    .shown_by(&["import os\nos.kill(1, 9)"], &["import signal\nsignal.signal(signal.SIGINT, f)", "proc.kill()"]),
    Rule::new(
        "py.permission",
        High,
        "Changes permissions, owners or its own rights.",
        "更改权限、属主或自身身份。",
        "os.chmod os.fchmod os.lchmod os.chown os.fchown os.lchown os.chroot os.setuid os.setgid \
         os.seteuid os.setegid os.setgroups pathlib..chmod shutil.chown posix.chmod",
    )
    .shown_by(&["import os\nos.chmod('x', 0o777)", "from pathlib import Path\nPath('x').chmod(1)"], &["door.chmod(1)"]),
    Rule::new(
        "py.introspection",
        High,
        "Accesses the interpreter through internal attributes of an object.",
        "通过对象内部属性访问解释器。",
        "..__subclasses__ ..__globals__ ..f_globals ..f_builtins ..__code__ ..gi_frame ..cr_frame \
         sys._getframe inspect.currentframe gc.get_objects sys.settrace sys.setprofile \
         sys.addaudithook",
    )
    .shown_by(
        &["().__class__.__base__.__subclasses__()", "f.__globals__['x']", "getattr(f, '__glo' + 'bals__')"],
        &["x.__class__.__name__", "self.__dict__", "class A: __slots__ = ()"],
    ),
    Rule::new(
        "py.import.dynamic",
        High,
        "Imports a module by a function call.",
        "以函数调用方式导入模块。",
        "importlib.reload importlib.util.* importlib.machinery.* imp.* zipimport.*",
    )
    .shown_by(
        &[
            "__import__('json')",
            "import importlib\nimportlib.import_module('json')",
            "from importlib import import_module as i\ni('x')",
        ],
        &["import json", "importer.import_module('x')", "import importlib.metadata as m\nm.version('x')"],
    ),
    Rule::new(
        "py.import.computed",
        Critical,
        "Imports a module whose name is known only at run time.",
        "导入运行时才确定名称的模块。",
        "",
    )
    .shown_by(&["__import__(name)", "import importlib\nimportlib.import_module(x)"], &["__import__('json')"]),
    Rule::new(
        "py.import.system",
        Medium,
        "Imports a module with access to system resources.",
        "导入可访问系统资源的模块。",
        "os os.* sys subprocess shutil pty posix socket requests httpx urllib.request urllib3 \
         aiohttp http.client http.server ftplib smtplib telnetlib paramiko ctypes cffi pickle \
         marshal dill signal multiprocessing importlib builtins runpy flask fastapi uvicorn \
         websockets socketserver pexpect psutil boto3 webbrowser tempfile glob code gc inspect",
    )
    .imported()
    .shown_by(
        &["import os", "from os import path", "import sys, json", "from urllib import request"],
        &["import json", "import osmnx", "'import os'", "from urllib.parse import quote"],
    ),
    Rule::new(
        "py.file.write",
        Medium,
        "Writes files.",
        "写入文件。",
        "pathlib..write_text pathlib..write_bytes pathlib..mkdir pathlib..touch pathlib..rename \
         pathlib..symlink_to shutil.copy* shutil.move shutil.make_archive shutil.unpack_archive \
         os.rename os.mkdir os.makedirs os.symlink os.link os.write numpy.save* cv2.imwrite \
         sqlite3.connect tempfile.* zipfile.ZipFile tarfile.open logging.FileHandler \
         pandas.ExcelWriter matplotlib.pyplot.savefig PIL..save torch.save joblib.dump h5py.File \
         docx..save openpyxl..save",
    )
    .called()
    .shown_by(
        &[
            "open('x', 'w')",
            "open('x', mode='a')",
            "df.to_csv('x.csv')",
            "from pathlib import Path\nPath('x').write_text('y')",
            "import logging\nlogging.basicConfig(filename='x.log')",
        ],
        &[
            "open('x')",
            "df.to_csv()",
            "sys.stdout.write('x')",
            "page.write_text('x')",
            "import logging\nlogging.basicConfig(level=1)",
        ],
    ),
    Rule::new(
        "py.file.read",
        Medium,
        "Reads files.",
        "读取文件。",
        "pathlib..read_text pathlib..read_bytes pathlib..open pathlib..iterdir pathlib..glob \
         pathlib..rglob pandas.read_* polars.read_* numpy.loadtxt numpy.genfromtxt numpy.fromfile \
         PIL.Image.open cv2.imread os.listdir os.walk os.scandir os.open os.stat glob.* linecache.* \
         fileinput.* configparser..read matplotlib.pyplot.imread openpyxl.load_workbook \
         docx.Document PyPDF2.PdfReader pypdf.PdfReader",
    )
    .called()
    .shown_by(
        &["open('x')", "import pandas as pd\npd.read_csv('x')", "open('x', 'rb').read()"],
        &["open('x', 'w')", "shop.open()", "reader.read_csv()"],
    ),
    Rule::new(
        "py.environment",
        Medium,
        "Reads or changes environment variables.",
        "读取或更改环境变量。",
        "os.environ os.environb os.getenv os.putenv os.unsetenv dotenv.*",
    )
    .shown_by(
        &["import os\nos.environ['A']", "from os import environ as e\ne.get('A')"],
        &["shop.environ", "import os\nos.sep"],
    ),
    Rule::new("py.syntax", Medium, "Cannot be parsed completely as Python.", "无法完整解析为 Python 代码。", "")
        .shown_by(&["x = = 1", "def f(:\n  pass"], &["x = 1", ""]),
    Rule::new(
        "py.too_complex",
        High,
        "Is too large or too complex to be assessed.",
        "内容过大或过于复杂，无法判断。",
        "",
    ),
];
