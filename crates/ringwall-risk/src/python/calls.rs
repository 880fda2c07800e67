//! Python calls with a known result, and calls that are a risk because of their arguments.

use super::INDEX;
use super::grammar::{NAMESPACE, Python};
use crate::code::arguments::Arguments;
use crate::code::fold;
use crate::code::grammar::{Call, Grammar};
use crate::code::syntax::{Id, Syntax};
use crate::code::value::{UNKNOWN, Value};
use crate::findings::{Findings, Lines};
use crate::level::Content;
use crate::shell::{names_everything, quoted};

/// Modules of which a member with an unknown name is a finding.
pub(super) const GRAVE: [&str; 9] =
    ["os", "subprocess", "builtins", "__builtins__", "shutil", "ctypes", "pty", "posix", "importlib"];

/// Maximum length of a named argument that is examined.
const MAX_WORD_LEN: usize = 64;

pub(super) fn result(path: &str, arguments: &Arguments<'_>) -> Option<Value> {
    let path_value = |path: String| Some(Value::path(&path));
    let text_value = |text: String| Some(Value::Text(text.into()));
    match path {
        "getattr" | "inspect.getattr_static" => {
            let base = arguments.path(0)?;
            match arguments.text(1) {
                Some(name) => path_value(Python::member(base, name)),
                None if base == UNKNOWN => None,
                None => path_value(format!("{base}[]")),
            }
        }
        "__import__"
        | "importlib.import_module"
        | "importlib.__import__"
        | "imp.load_module"
        | "pkgutil.resolve_name" => path_value(arguments.text(0)?.replace(':', ".")),
        "vars" if arguments.count() > 0 => path_value(arguments.path(0)?.to_owned()),
        "vars" | "globals" | "locals" => path_value(NAMESPACE.to_owned()),
        "operator.attrgetter" => path_value(format!("operator.attrgetter:{}", arguments.text(0)?)),
        "functools.partial" | "staticmethod" | "functools.wraps" => path_value(arguments.path(0)?.to_owned()),
        "os.path.expanduser" | "os.path.expandvars" => text_value(arguments.text(0)?.to_owned()),
        "chr" => text_value(arguments.characters()?),
        "str" | "bytes" | "bytearray" => match arguments.at(0) {
            [Value::Text(text)] => Some(Value::Text(text.clone())),
            [Value::Texts(_)] if path != "str" => text_value(fold::join(&arguments.texts(0)?, "")?),
            _ => None,
        },
        "bytes.fromhex" | "bytearray.fromhex" | "binascii.unhexlify" => text_value(fold::hex(arguments.text(0)?)?),
        "base64.b64decode" | "base64.standard_b64decode" | "base64.decodebytes" | "binascii.a2b_base64" => {
            text_value(fold::base64(arguments.text(0)?)?)
        }
        "codecs.decode" => match arguments.text(1)? {
            "rot13" | "rot_13" => text_value(fold::rot13(arguments.text(0)?)),
            "hex" => text_value(fold::hex(arguments.text(0)?)?),
            _ => None,
        },
        _ => {
            if let Some(name) = path.strip_prefix("operator.attrgetter:") {
                return path_value(Python::member(arguments.path(0)?, name));
            }
            let (base, method) = path.rsplit_once('.')?;
            match method {
                "__getattribute__" | "__getattr__" => path_value(Python::member(base, arguments.text(0)?)),
                "get" | "__getitem__" | "pop" => path_value(Python::part(base, arguments.text(0)?)?),
                _ => None,
            }
        }
    }
}

/// The source of a named argument, truncated: it may contain calls with named arguments of their
/// own.
fn named<'a>(syntax: &Syntax<'a>, nodes: &[Id], name: &str) -> Option<&'a str> {
    let argument = nodes.iter().find(|node| {
        syntax.kind(**node) == "keyword_argument"
            && syntax.field(**node, "name").map(|id| syntax.text(id)) == Some(name)
    })?;
    let written = syntax.text(syntax.field(*argument, "value")?);
    Some(written.get(..MAX_WORD_LEN.min(written.len())).unwrap_or_default())
}

pub(super) fn inspect(syntax: &Syntax<'_>, call: &Call<'_>, findings: &mut Findings) {
    let mut add = |id: &str| findings.add_by_id(&INDEX, id, call.line);
    let first = || call.arguments.text(0);
    let name = || call.arguments.short_text(0);
    match call.path {
        "open" | "io.open" | "codecs.open" | "gzip.open" | "bz2.open" | "lzma.open" => {
            let mode = call.arguments.short_text(1).or_else(|| named(syntax, call.nodes, "mode"));
            let writes = mode.is_some_and(|mode| mode.contains(['w', 'a', 'x', '+']));
            add(if writes { "py.file.write" } else { "py.file.read" });
        }
        "getattr" => {
            let base = call.arguments.path(0).unwrap_or(UNKNOWN);
            if GRAVE.contains(&base) && !call.arguments.is_text(1) {
                add("py.exec.computed");
            }
        }
        "__import__" | "importlib.import_module" | "importlib.__import__" => {
            add(if call.arguments.is_text(0) { "py.import.dynamic" } else { "py.import.computed" });
        }
        "logging.basicConfig" if named(syntax, call.nodes, "filename").is_some() => add("py.file.write"),
        "yaml.load" | "yaml.load_all" => {
            let loader = named(syntax, call.nodes, "Loader").or_else(|| call.arguments.path(1)).unwrap_or_default();
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
        "shutil.rmtree" | "os.removedirs" if name().is_some_and(names_everything) => add("py.delete.everything"),
        "shutil.rmtree" if is_home(call) => add("py.delete.everything"),
        path if reads_addresses(path) && name().is_some_and(is_address) => add("py.network.client"),
        _ => inspect_output(call, findings),
    }
    if runs_shell(syntax, call)
        && let Some(text) = first()
    {
        findings.nest(Content::Shell, text, call.lines_of(syntax, text));
    }
    if let [Value::Texts(_)] = call.arguments.at(0)
        && call.path.starts_with("subprocess.")
        && let Some(words) = call.arguments.texts(0)
    {
        findings.nest(Content::Shell, &quoted(&words), Lines::All(call.line));
    }
    if let "exec" | "eval" | "compile" = call.path
        && let Some(text) = first()
    {
        findings.nest(Content::Python, text, call.lines_of(syntax, text));
    }
}

/// Methods, of any object, that write a file if they get an argument.
fn inspect_output(call: &Call<'_>, findings: &mut Findings) {
    const WRITERS: [&str; 9] =
        ["to_csv", "to_excel", "to_json", "to_parquet", "to_html", "to_feather", "to_pickle", "to_sql", "savefig"];
    let method = call.path.rsplit_once('.').map(|(_, method)| method);
    if method.is_some_and(|method| WRITERS.contains(&method)) && !call.nodes.is_empty() {
        findings.add_by_id(&INDEX, "py.file.write", call.line);
    }
}

/// Functions that read a file or a URL.
fn reads_addresses(path: &str) -> bool {
    let is_table = ["pandas.read_", "polars.read_", "polars.scan_"].iter().any(|begin| path.starts_with(begin));
    is_table || matches!(path, "numpy.loadtxt" | "numpy.genfromtxt")
}

fn is_address(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| {
        matches!(scheme.as_str(), "http" | "https" | "ftp" | "s3" | "gs" | "az" | "abfs" | "hdfs")
    })
}

fn is_home(call: &Call<'_>) -> bool {
    call.arguments.path(0) == Some("pathlib.Path.home()")
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
