//! Calls of Python that give something known, and those that are grave by what is handed to them.

use super::INDEX;
use super::grammar::{NAMESPACE, Python};
use crate::risk::code::fold::{self, path_at, text_at};
use crate::risk::code::grammar::{Call, Grammar};
use crate::risk::code::value::{UNKNOWN, Value};
use crate::risk::code::syntax::{Id, Syntax};
use crate::risk::findings::Findings;
use crate::risk::level::Content;
use crate::risk::shell::{names_everything, quoted};

/// Modules of which a member by an unknown name is an alarm.
pub(super) const GRAVE: [&str; 9] =
    ["os", "subprocess", "builtins", "__builtins__", "shutil", "ctypes", "pty", "posix", "importlib"];

pub(super) fn result(path: &str, arguments: &[Vec<Value>]) -> Option<Value> {
    let path_value = |path: String| Some(Value::path(&path));
    let text_value = |text: String| Some(Value::Text(text.into()));
    match path {
        "getattr" | "inspect.getattr_static" => {
            let base = path_at(arguments, 0)?;
            match text_at(arguments, 1) {
                Some(name) => path_value(Python::member(base, name)),
                None if base == UNKNOWN => None,
                None => path_value(format!("{base}[]")),
            }
        }
        "__import__"
        | "importlib.import_module"
        | "importlib.__import__"
        | "imp.load_module"
        | "pkgutil.resolve_name" => path_value(text_at(arguments, 0)?.replace(':', ".")),
        "vars" if !arguments.is_empty() => path_value(path_at(arguments, 0)?.to_owned()),
        "vars" | "globals" | "locals" => path_value(NAMESPACE.to_owned()),
        "operator.attrgetter" => path_value(format!("operator.attrgetter:{}", text_at(arguments, 0)?)),
        "functools.partial" | "staticmethod" | "functools.wraps" => path_value(path_at(arguments, 0)?.to_owned()),
        "os.path.expanduser" | "os.path.expandvars" => text_value(text_at(arguments, 0)?.to_owned()),
        "chr" => text_value(fold::characters_of(arguments)?),
        "str" | "bytes" | "bytearray" => match arguments.first()?.as_slice() {
            [Value::Text(text)] => Some(Value::Text(text.clone())),
            [Value::Texts(texts)] if path != "str" => text_value(fold::join(texts, "")?),
            _ => None,
        },
        "bytes.fromhex" | "bytearray.fromhex" | "binascii.unhexlify" => text_value(fold::hex(text_at(arguments, 0)?)?),
        "base64.b64decode" | "base64.standard_b64decode" | "base64.decodebytes" | "binascii.a2b_base64" => {
            text_value(fold::base64(text_at(arguments, 0)?)?)
        }
        "codecs.decode" => match text_at(arguments, 1)? {
            "rot13" | "rot_13" => text_value(fold::rot13(text_at(arguments, 0)?)),
            "hex" => text_value(fold::hex(text_at(arguments, 0)?)?),
            _ => None,
        },
        _ => {
            if let Some(name) = path.strip_prefix("operator.attrgetter:") {
                return path_value(Python::member(path_at(arguments, 0)?, name));
            }
            let (base, method) = path.rsplit_once('.')?;
            match method {
                "__getattribute__" | "__getattr__" => path_value(Python::member(base, text_at(arguments, 0)?)),
                "get" | "__getitem__" | "pop" => path_value(Python::part(base, text_at(arguments, 0)?)?),
                _ => None,
            }
        }
    }
}

/// The text of a named argument.
fn named<'a>(syntax: &Syntax<'a>, nodes: &[Id], name: &str) -> Option<&'a str> {
    let argument = nodes.iter().find(|node| {
        syntax.kind(**node) == "keyword_argument"
            && syntax.field(**node, "name").map(|id| syntax.text(id)) == Some(name)
    })?;
    syntax.field(*argument, "value").map(|value| syntax.text(value))
}

pub(super) fn inspect(syntax: &Syntax<'_>, call: &Call<'_>, findings: &mut Findings) {
    let mut add = |id: &str| findings.add_by_id(&INDEX, id, call.line);
    let first = text_at(call.arguments, 0);
    match call.path {
        "open" | "io.open" | "codecs.open" | "gzip.open" | "bz2.open" | "lzma.open" => {
            let mode = text_at(call.arguments, 1).or_else(|| named(syntax, call.nodes, "mode"));
            let writes = mode.is_some_and(|mode| mode.contains(['w', 'a', 'x', '+']));
            add(if writes { "py.file.write" } else { "py.file.read" });
        }
        "getattr" => {
            let base = path_at(call.arguments, 0).unwrap_or(UNKNOWN);
            if GRAVE.contains(&base) && text_at(call.arguments, 1).is_none() {
                add("py.exec.computed");
            }
        }
        "__import__" | "importlib.import_module" | "importlib.__import__" => match first {
            Some(_) => add("py.import.dynamic"),
            None => add("py.import.computed"),
        },
        "yaml.load" | "yaml.load_all" => {
            let loader = named(syntax, call.nodes, "Loader").map(str::to_owned);
            let loader = loader.or_else(|| path_at(call.arguments, 1).map(str::to_owned)).unwrap_or_default();
            if !loader.contains("SafeLoader") && !loader.contains("BaseLoader") {
                add("py.unpickle");
            }
        }
        "numpy.load" => match named(syntax, call.nodes, "allow_pickle") {
            None | Some("False") => add("py.file.read"),
            Some(_) => add("py.unpickle"),
        },
        "torch.load" => match named(syntax, call.nodes, "weights_only") {
            Some("True") => add("py.file.read"),
            _ => add("py.unpickle"),
        },
        "shutil.rmtree" | "os.removedirs" if first.is_some_and(names_everything) => add("py.delete.everything"),
        "shutil.rmtree" if is_home(call) => add("py.delete.everything"),
        _ => inspect_output(call, findings),
    }
    if let Some(text) = first
        && runs_shell(syntax, call)
    {
        findings.nest(Content::Shell, text, call.line);
    }
    if let Some([Value::Texts(words)]) = call.arguments.first().map(Vec::as_slice)
        && call.path.starts_with("subprocess.")
    {
        findings.nest(Content::Shell, &quoted(words), call.line);
    }
    if let (Some(text), "exec" | "eval" | "compile") = (first, call.path) {
        findings.nest(Content::Python, text, call.line);
    }
}

/// Methods that write when they are told where to, whatever they are methods of.
fn inspect_output(call: &Call<'_>, findings: &mut Findings) {
    const WRITERS: [&str; 9] =
        ["to_csv", "to_excel", "to_json", "to_parquet", "to_html", "to_feather", "to_pickle", "to_sql", "savefig"];
    let method = call.path.rsplit_once('.').map(|(_, method)| method);
    if method.is_some_and(|method| WRITERS.contains(&method)) && !call.nodes.is_empty() {
        findings.add_by_id(&INDEX, "py.file.write", call.line);
    }
}

fn is_home(call: &Call<'_>) -> bool {
    path_at(call.arguments, 0) == Some("pathlib.Path.home()")
}

fn runs_shell(syntax: &Syntax<'_>, call: &Call<'_>) -> bool {
    match call.path {
        "os.system"
        | "os.popen"
        | "subprocess.getoutput"
        | "subprocess.getstatusoutput"
        | "asyncio.create_subprocess_shell" => true,
        path if path.starts_with("subprocess.") => {
            named(syntax, call.nodes, "shell").is_some_and(|shell| shell != "False")
        }
        _ => false,
    }
}
