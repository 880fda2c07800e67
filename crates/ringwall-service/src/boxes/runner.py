"""Runs cells of code in one interpreter that stays: variables, imports and definitions are there in the next cell.

Requests and answers are lines of JSON on descriptor 3; what a cell prints goes to 1 and 2 as usual, and is flushed before
its answer. The code that runs here shares this process and may change any of it: whoever reads the answers trusts nothing.

What is imported here is in the memory of every context: what few cells need (base64, traceback) is imported by those, and
what a module in C has is taken from there.
"""

import _ast
import _signal
import builtins
import io
import json
import os
import sys

LONGEST_TEXT = 64 * 1024
SHORT_TEXT = 1024
LARGEST_RESULT = 4 * 1024 * 1024
LARGEST_ANSWER = 8 * 1024 * 1024
MOST_RESULTS = 32
DEEPEST = 64
RICH = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/json", "_repr_json_"),
)
# Types without rich forms: `_repr_*_` methods are not looked up.
PLAIN = frozenset((bool, int, float, complex, str, bytes))

# Shared: creating an encoder takes longer than most calls of it.
ENCODER = json.JSONEncoder(ensure_ascii=False)
decoded = json.JSONDecoder().scan_once


def encoded(data):
    """As it is sent. Halves of characters, which text may hold here, are in no text elsewhere."""
    return ENCODER.encode(data).encode("utf-8", "replace")


class Results:
    """What a cell shows: bundles of one thing in several forms."""

    def __init__(self):
        self.bundles = []
        self.room = LARGEST_ANSWER

    def add(self, bundle):
        kept = {}
        for mime, data in bundle.items():
            # At most six bytes per character, so short text is not encoded to measure it.
            is_short = type(data) is str and len(data) <= SHORT_TEXT
            size = 6 * len(data) if is_short else len(encoded(data))
            if size <= min(LARGEST_RESULT, self.room):
                kept[mime] = data
                self.room -= size
        if kept and len(self.bundles) < MOST_RESULTS:
            self.bundles.append(kept)


class Cells:
    def __init__(self):
        self.results = Results()
        self.count = 0
        self.is_running = False
        self.home = os.getpid()
        self.sources = {}
        self.main = type(sys)("__main__")
        self.main.__dict__.update(__builtins__=builtins, display=self.display)

    def display(self, *values):
        """Shows values in the forms that they have."""
        for value in values:
            self.show(value)

    def show(self, value):
        if is_figure(value):
            self.results.add(picture(value))
        else:
            self.results.add(forms_of(value))

    def show_figures(self):
        """Every figure that is open, once; also what `plt.show()` does."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums"):
            return
        for number in pyplot.get_fignums():
            self.results.add(picture(pyplot.figure(number)))
        pyplot.close("all")

    def run(self, code):
        self.results = Results()
        self.count += 1
        error = None
        try:
            try:
                self.is_running = True
                self.evaluate(code)
            finally:
                self.is_running = False
        except BaseException as raised:
            error = describe(raised)
        if os.getpid() != self.home:
            # A child process that a cell has forked must not answer.
            os._exit(0)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass
        return {"results": self.results.bundles, "error": error}

    def evaluate(self, code):
        name = f"<cell {self.count}>"
        # Tracebacks show the source lines of a cell, also when a later cell calls its functions.
        self.sources[name] = (len(code), None, code.splitlines(True), name)
        if (shown := sys.modules.get("linecache")) is not None:
            self.show_sources(shown)
        tree = compile(code, name, "exec", _ast.PyCF_ONLY_AST)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        names = self.main.__dict__
        # Skipped for the frequent cell that is a single expression.
        if tree.body:
            exec(compile(tree, name, "exec"), names)
        if last is not None:
            value = eval(compile(_ast.Expression(last.value), name, "eval"), names)
            if value is not None:
                names["_"] = value
                if not (is_figure(value) and is_open(value)):
                    self.show(value)
        self.show_figures()

    def show_sources(self, linecache):
        """To whoever looks for lines of a file: tracebacks, `inspect`."""
        linecache.cache.update(self.sources)
        self.sources.clear()

    def interrupt(self, *_):
        if self.is_running:
            raise KeyboardInterrupt


def is_figure(value):
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


def is_open(figure):
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot is not None and figure.number in pyplot.get_fignums() if hasattr(figure, "number") else False


def picture(figure):
    import base64

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return {"text/plain": repr(figure), "image/png": base64.b64encode(buffer.getvalue()).decode()}


def forms_of(value):
    text = repr(value)
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "…"
    bundle = {"text/plain": text}
    if type(value) in PLAIN or isinstance(value, type):
        return bundle
    several = getattr(value, "_repr_mimebundle_", None)
    if callable(several):
        made = several()
        made = made[0] if isinstance(made, tuple) else made
        for mime, data in (made or {}).items():
            put(bundle, str(mime), data)
    for mime, method in RICH:
        form = getattr(value, method, None)
        if callable(form) and mime not in bundle:
            put(bundle, mime, form())
    if type(value) in (dict, list) and "application/json" not in bundle:
        put(bundle, "application/json", value)
    return bundle


def put(bundle, mime, data):
    """In a form that JSON has, or not at all."""
    if isinstance(data, tuple):
        data = data[0]
    if isinstance(data, bytes):
        import base64

        data = base64.b64encode(data).decode()
    if data is None:
        return
    try:
        if is_shallow(data, DEEPEST):
            bundle[mime] = json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        pass


def is_shallow(data, left):
    """Whoever reads the answer goes only so deep."""
    if isinstance(data, (dict, list, tuple)):
        inner = data.values() if isinstance(data, dict) else data
        return left > 0 and all(is_shallow(each, left - 1) for each in inner)
    return True


def describe(raised):
    """The error as Python tells it, without the frames of this file. It goes to stderr too, as it would from a script."""
    raised.__traceback__ = without_ours(raised.__traceback__)
    try:
        value = str(raised)
    except BaseException:
        value = ""
    try:
        import traceback

        lines = traceback.format_exception(type(raised), raised, raised.__traceback__)
    except BaseException:
        # A cell may have broken imports.
        lines = [f"{type(raised).__name__}: {value}\n"]
    told = "".join(lines)
    try:
        sys.stderr.write(told)
    except BaseException:
        pass
    return {"name": type(raised).__name__, "value": value[:LONGEST_TEXT], "traceback": told[-LONGEST_TEXT:]}


def without_ours(trace):
    """Ours are the first, and the last of a cell that was interrupted."""
    is_ours = lambda frame: frame.tb_frame.f_code.co_filename == without_ours.__code__.co_filename
    while trace is not None and is_ours(trace):
        trace = trace.tb_next
    frame = trace
    while frame is not None and frame.tb_next is not None:
        if frame.tb_next.tb_next is None and is_ours(frame.tb_next):
            frame.tb_next = None
        frame = frame.tb_next
    return trace


class Arrivals:
    """Does something to a module when it is imported."""

    def __init__(self, welcome):
        self.welcome = welcome

    def find_spec(self, name, path=None, target=None):
        welcome = self.welcome.get(name)
        if welcome is None:
            return None
        import importlib.machinery

        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                welcome(module)

            spec.loader.exec_module = exec_module
        return spec


def serve():
    # The duplicate has another number and close-on-exec: code that closes or reuses 3 does not
    # break the channel, and programs that a cell starts do not inherit it.
    channel = open(os.dup(3), "r+b", buffering=0)
    os.close(3)
    lines = io.BufferedReader(channel, 1 << 16)
    cells = Cells()
    sys.modules["__main__"] = cells.main

    def make_pyplot_show(pyplot):
        # A plain function, because pyplot sets attributes on it.
        pyplot.show = lambda *_, **__: cells.show_figures()

    welcome = {"matplotlib.pyplot": make_pyplot_show, "linecache": cells.show_sources}
    sys.meta_path.insert(0, Arrivals(welcome))
    os.environ.setdefault("MPLBACKEND", "Agg")
    # A forked child must not use the channel.
    os.register_at_fork(after_in_child=channel.close)
    _signal.signal(_signal.SIGINT, cells.interrupt)
    while True:
        line = lines.readline()
        if not line:
            break
        request, _ = decoded(line.decode(), 0)
        try:
            # A cell may have replaced the handler.
            _signal.signal(_signal.SIGINT, cells.interrupt)
            answer = cells.run(request["code"])
        except KeyboardInterrupt as late:
            answer = {"results": cells.results.bundles, "error": describe(late)}
        told = encoded({"id": request["id"], **answer}) + b"\n"
        while told:
            told = told[channel.write(told) :]


serve()
