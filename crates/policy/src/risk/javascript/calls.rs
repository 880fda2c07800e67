//! Calls of JavaScript that give something known, and those that are grave by what is handed to them.

use super::INDEX;
use super::grammar::{JavaScript, module};
use crate::risk::code::fold::{self, path_at, text_at};
use crate::risk::code::grammar::{Call, Grammar};
use crate::risk::code::value::Value;
use crate::risk::findings::Findings;
use crate::risk::level::Content;
use crate::risk::rule::Use;
use crate::risk::shell::names_everything;

const REQUIRES: [&str; 4] = ["require", "import", "module.createRequire()", "process.getBuiltinModule"];

pub(super) fn result(path: &str, arguments: &[Vec<Value>]) -> Option<Value> {
    let text_value = |text: String| Some(Value::Text(text.into()));
    if REQUIRES.contains(&path) {
        return Some(Value::path(&module(text_at(arguments, 0)?)));
    }
    match path {
        "Reflect.get" => Some(Value::path(&JavaScript::member(path_at(arguments, 0)?, text_at(arguments, 1)?))),
        "String.fromCharCode" | "String.fromCodePoint" => text_value(fold::characters_of(arguments)?),
        "atob" => text_value(fold::base64(text_at(arguments, 0)?)?),
        "decodeURIComponent" | "String" | "util.promisify" => arguments.first()?.first().cloned(),
        "Buffer.from" => match text_at(arguments, 1) {
            Some("base64") => text_value(fold::base64(text_at(arguments, 0)?)?),
            Some("hex") => text_value(fold::hex(text_at(arguments, 0)?)?),
            _ => None,
        },
        _ => {
            let base = path.strip_suffix(".bind")?;
            Some(Value::path(base))
        }
    }
}

pub(super) fn inspect(call: &Call<'_>, findings: &mut Findings) {
    let first = text_at(call.arguments, 0);
    if REQUIRES.contains(&call.path) {
        match first {
            Some(name) => {
                let rules = INDEX.find(&module(name), Use::Imported);
                rules.into_iter().for_each(|rule| findings.add(rule, call.line));
            }
            None => findings.add_by_id(&INDEX, "js.import.computed", call.line),
        }
        return;
    }
    let member = call.path.rsplit_once('.').map_or(call.path, |(_, member)| member);
    match (call.path, first) {
        ("setTimeout" | "setInterval" | "setImmediate", Some(_)) => {
            findings.add_by_id(&INDEX, "js.exec.timer", call.line);
        }
        ("eval" | "Function", Some(text)) => findings.nest(Content::Javascript, text, call.line),
        (path, Some(text)) if path.starts_with("fs") && member.starts_with("rm") && names_everything(text) => {
            findings.add_by_id(&INDEX, "js.delete.everything", call.line);
        }
        ("child_process.exec" | "child_process.execSync", Some(text)) => {
            findings.nest(Content::Shell, text, call.line);
        }
        _ => {}
    }
}
