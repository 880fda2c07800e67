//! The shapes of Python's nodes, and the normal form of paths.

use unicode_normalization::UnicodeNormalization;

use super::{bindings, calls};
use crate::code::arguments::Arguments;
use crate::code::fold;
use crate::code::grammar::{Call, Grammar, Shape};
use crate::code::scopes::Scopes;
use crate::code::syntax::{Id, Opens, Syntax};
use crate::code::value::{UNKNOWN, Value};
use crate::findings::Findings;
use crate::rule::Index;

/// The path of the dictionary of all global names.
pub(super) const NAMESPACE: &str = "__main__";
/// Maximum number of items of a list that are examined.
const MAX_ITEMS: usize = 512;

pub(crate) struct Python;

impl Grammar for Python {
    const SYNTAX: &'static str = "py.syntax";
    const TOO_COMPLEX: &'static str = "py.too_complex";
    const FUNCTION: &'static str = UNKNOWN;

    fn index() -> &'static Index {
        &super::INDEX
    }

    fn opens(kind: &str) -> Opens {
        match kind {
            "function_definition"
            | "lambda"
            | "list_comprehension"
            | "set_comprehension"
            | "dictionary_comprehension"
            | "generator_expression" => Opens::Function,
            "class_definition" => Opens::Class,
            "if_statement"
            | "while_statement"
            | "for_statement"
            | "try_statement"
            | "match_statement"
            | "conditional_expression"
            | "boolean_operator" => Opens::Condition,
            _ => Opens::Nothing,
        }
    }

    fn shape(syntax: &Syntax<'_>, id: Id) -> Shape {
        shape(syntax, id).unwrap_or(Shape::Other)
    }

    fn refers(kind: &str) -> bool {
        matches!(kind, "identifier" | "attribute" | "subscript" | "call")
    }

    fn bind(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) {
        bindings::bind(syntax, id, scopes);
    }

    fn imports(syntax: &Syntax<'_>, id: Id) -> Vec<String> {
        bindings::imports(syntax, id)
    }

    fn member(base: &str, name: &str) -> String {
        match (base, name) {
            ("builtins" | "__builtins__", "__dict__") | (_, "__dict__") => base.to_owned(),
            ("builtins" | "__builtins__" | NAMESPACE, _) => name.to_owned(),
            _ => format!("{base}.{name}"),
        }
    }

    fn part(base: &str, name: &str) -> Option<String> {
        let is_table = matches!(base, NAMESPACE | "sys.modules" | "builtins" | "__builtins__");
        if is_table || base.ends_with(".__globals__") || base.ends_with(".f_globals") || base.ends_with(".f_builtins") {
            return Some(name.to_owned());
        }
        // A subscript is a member only for the dictionary of a module; elsewhere it is data.
        let is_plain = base.chars().all(|character| character.is_alphanumeric() || character == '_');
        (is_plain && calls::GRAVE.contains(&base)).then(|| Self::member(base, name))
    }

    fn result(path: &str, arguments: &Arguments<'_>) -> Option<Value> {
        calls::result(path, arguments)
    }

    fn text_method(text: &str, method: &str, arguments: &Arguments<'_>) -> Option<Value> {
        match method {
            "join" => Some(Value::Text(fold::join(&arguments.texts(0)?, text)?.into())),
            "format" => Some(Value::Text(fold::fill(text, &arguments.all_texts()?)?.into())),
            _ => fold::text_method(text, method, arguments),
        }
    }

    fn inspect_call(syntax: &Syntax<'_>, call: &Call<'_>, findings: &mut Findings) {
        calls::inspect(syntax, call, findings);
    }

    fn inspect_node(syntax: &Syntax<'_>, id: Id, line: usize, findings: &mut Findings) {
        if syntax.kind(id) == "exec_statement" {
            findings.add_by_id(&super::INDEX, "py.exec.exec", line);
        }
    }
}

/// Python normalises identifiers by NFKC.
pub(super) fn plain(name: &str) -> String {
    if name.is_ascii() { name.to_owned() } else { name.nfkc().collect() }
}

fn shape(syntax: &Syntax<'_>, id: Id) -> Option<Shape> {
    let parts = || syntax.parts(id);
    Some(match syntax.kind(id) {
        "identifier" => Shape::Name(plain(syntax.text(id))),
        "attribute" => Shape::Member(syntax.field(id, "object")?, plain(syntax.text(syntax.field(id, "attribute")?))),
        "subscript" => {
            let (value, key) = (syntax.field(id, "value")?, syntax.field(id, "subscript")?);
            let written: String = syntax.text(key).chars().take(8).filter(|one| !one.is_whitespace()).collect();
            if written == "::-1" { Shape::Reversed(value) } else { Shape::Part(value, key) }
        }
        "call" => {
            let arguments = syntax.field(id, "arguments")?;
            let arguments =
                if syntax.kind(arguments) == "argument_list" { syntax.parts(arguments) } else { vec![arguments] };
            Shape::Call(syntax.field(id, "function")?, arguments)
        }
        "string" => {
            let is_part = |part: &Id| matches!(syntax.kind(*part), "string_content" | "interpolation");
            Shape::Joined(parts().into_iter().filter(is_part).collect())
        }
        "string_content" => {
            let start = syntax.node(id).parent.and_then(|string| syntax.children(string).next());
            let is_raw = start.is_some_and(|start| syntax.text(start).contains(['r', 'R']));
            let written = syntax.text(id);
            Shape::Text(if is_raw { written.to_owned() } else { fold::unescape(written) })
        }
        "interpolation" => Shape::Same(syntax.field(id, "expression")?),
        "concatenated_string" => Shape::Joined(parts()),
        "binary_operator" => match syntax.text(syntax.field(id, "operator")?) {
            "+" => Shape::Joined(syntax.summands(id, "binary_operator")),
            "%" => {
                let right = syntax.field(id, "right")?;
                let filling = if syntax.kind(right) == "tuple" { syntax.parts(right) } else { vec![right] };
                Shape::Filled(syntax.field(id, "left")?, filling)
            }
            _ => return None,
        },
        "parenthesized_expression" | "await" | "type" => Shape::Same(*parts().first()?),
        "named_expression" => Shape::Same(syntax.field(id, "value")?),
        "conditional_expression" => {
            let parts = parts();
            Shape::Either(vec![*parts.first()?, *parts.get(2)?])
        }
        "boolean_operator" => Shape::Either(vec![syntax.field(id, "left")?, syntax.field(id, "right")?]),
        "list" | "tuple" | "set" | "expression_list" => {
            Shape::Items(syntax.children(id).take(MAX_ITEMS).filter(|part| syntax.kind(*part) != "comment").collect())
        }
        "dictionary" => {
            Shape::Items(syntax.children(id).take(MAX_ITEMS).filter_map(|pair| syntax.field(pair, "value")).collect())
        }
        "integer" => Shape::Number(number(syntax.text(id))?),
        "lambda" => Shape::Function,
        _ => return None,
    })
}

fn number(written: &str) -> Option<i64> {
    let digits: String = written.chars().take(24).filter(|digit| *digit != '_').collect();
    match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => i64::from_str_radix(&digits[2..], 16).ok(),
        Some("0o") => i64::from_str_radix(&digits[2..], 8).ok(),
        Some("0b") => i64::from_str_radix(&digits[2..], 2).ok(),
        _ => digits.parse().ok(),
    }
}
