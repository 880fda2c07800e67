//! JavaScript calls with a known result, and calls that are a risk because of their arguments.

use super::INDEX;
use super::grammar::{JavaScript, module};
use crate::code::arguments::Arguments;
use crate::code::fold;
use crate::code::grammar::{Call, Grammar};
use crate::code::syntax::Syntax;
use crate::code::value::Value;
use crate::findings::Findings;
use crate::level::Content;
use crate::rule::Use;
use crate::shell::names_everything;

const REQUIRES: [&str; 4] = ["require", "import", "module.createRequire()", "process.getBuiltinModule"];

pub(super) fn result(path: &str, arguments: &Arguments<'_>) -> Option<Value> {
    let text_value = |text: String| Some(Value::Text(text.into()));
    if REQUIRES.contains(&path) {
        return Some(Value::path(&module(arguments.text(0)?)));
    }
    match path {
        "Reflect.get" => Some(Value::path(&JavaScript::member(arguments.path(0)?, arguments.text(1)?))),
        "String.fromCharCode" | "String.fromCodePoint" => text_value(arguments.characters()?),
        "atob" => text_value(fold::base64(arguments.text(0)?)?),
        "decodeURIComponent" | "String" | "util.promisify" => arguments.at(0).first().cloned(),
        "Buffer.from" => match arguments.text(1) {
            Some("base64") => text_value(fold::base64(arguments.text(0)?)?),
            Some("hex") => text_value(fold::hex(arguments.text(0)?)?),
            _ => None,
        },
        _ => {
            let base = path.strip_suffix(".bind")?;
            Some(Value::path(base))
        }
    }
}

pub(super) fn inspect(syntax: &Syntax<'_>, call: &Call<'_>, findings: &mut Findings) {
    let first = || call.arguments.text(0);
    if REQUIRES.contains(&call.path) {
        match call.arguments.short_text(0) {
            Some(name) => {
                let rules = INDEX.find(&module(name), Use::Imported);
                rules.into_iter().for_each(|rule| findings.add(rule, call.line));
            }
            None => findings.add_by_id(&INDEX, "js.import.computed", call.line),
        }
        return;
    }
    let member = call.path.rsplit_once('.').map_or(call.path, |(_, member)| member);
    let run = match call.path {
        "setTimeout" | "setInterval" | "setImmediate" if call.arguments.is_text(0) => {
            findings.add_by_id(&INDEX, "js.exec.timer", call.line);
            Some(Content::Javascript)
        }
        "eval" | "Function" => Some(Content::Javascript),
        "child_process.exec" | "child_process.execSync" => Some(Content::Shell),
        path if path.starts_with("fs") && member.starts_with("rm") => {
            if call.arguments.short_text(0).is_some_and(names_everything) {
                findings.add_by_id(&INDEX, "js.delete.everything", call.line);
            }
            None
        }
        _ => None,
    };
    if let Some(content) = run
        && let Some(text) = first()
    {
        findings.nest(content, text, call.lines_of(syntax, text));
    }
}
