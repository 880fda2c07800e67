//! The shapes of JavaScript's nodes, and the normal form of paths.

use super::{bindings, calls};
use crate::code::arguments::Arguments;
use crate::code::fold;
use crate::code::grammar::{Call, Grammar, Shape};
use crate::code::scopes::Scopes;
use crate::code::syntax::{Id, Opens, Syntax};
use crate::code::value::Value;
use crate::findings::Findings;
use crate::rule::Index;

/// Maximum number of items of a list that are examined.
const MAX_ITEMS: usize = 512;
/// Names of the global object.
const GLOBALS: [&str; 5] = ["globalThis", "global", "window", "self", "top"];

pub(crate) struct JavaScript;

impl Grammar for JavaScript {
    const SYNTAX: &'static str = "js.syntax";
    const TOO_COMPLEX: &'static str = "js.too_complex";
    const FUNCTION: &'static str = "function";

    fn index() -> &'static Index {
        &super::INDEX
    }

    fn opens(kind: &str) -> Opens {
        match kind {
            "function_declaration"
            | "function_expression"
            | "arrow_function"
            | "method_definition"
            | "generator_function"
            | "generator_function_declaration" => Opens::Function,
            "statement_block" | "for_statement" | "for_in_statement" | "catch_clause" | "class_body" => Opens::Block,
            "if_statement" | "while_statement" | "do_statement" | "switch_statement" | "try_statement"
            | "ternary_expression" => Opens::Condition,
            _ => Opens::Nothing,
        }
    }

    fn shape(syntax: &Syntax<'_>, id: Id) -> Shape {
        shape(syntax, id).unwrap_or(Shape::Other)
    }

    fn refers(kind: &str) -> bool {
        matches!(
            kind,
            "identifier"
                | "shorthand_property_identifier"
                | "member_expression"
                | "subscript_expression"
                | "call_expression"
                | "new_expression"
        )
    }

    fn bind(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) {
        bindings::bind(syntax, id, scopes);
    }

    fn imports(syntax: &Syntax<'_>, id: Id) -> Vec<String> {
        bindings::imports(syntax, id)
    }

    fn member(base: &str, name: &str) -> String {
        match (base, name) {
            (base, name) if GLOBALS.contains(&base) => name.to_owned(),
            // The default export of a module has the path of the module.
            (base, "default") => base.to_owned(),
            ("process.mainModule" | "module" | "require.main", "require") => "require".to_owned(),
            ("function" | "?.constructor", "constructor") => "Function".to_owned(),
            (base, "constructor") if base.ends_with(".constructor") => "Function".to_owned(),
            (base, "constructor") if base.ends_with(".prototype") => base.trim_end_matches(".prototype").to_owned(),
            _ => format!("{base}.{name}"),
        }
    }

    fn part(base: &str, name: &str) -> Option<String> {
        Some(Self::member(base, name))
    }

    fn result(path: &str, arguments: &Arguments<'_>) -> Option<Value> {
        calls::result(path, arguments)
    }

    fn text_method(text: &str, method: &str, arguments: &Arguments<'_>) -> Option<Value> {
        fold::text_method(text, method, arguments)
    }

    fn inspect_call(syntax: &Syntax<'_>, call: &Call<'_>, findings: &mut Findings) {
        calls::inspect(syntax, call, findings);
    }
}

/// The name of a module without the prefix `node:`.
pub(super) fn module(name: &str) -> String {
    name.strip_prefix("node:").unwrap_or(name).replace('/', ".")
}

/// Identifiers may contain Unicode escapes.
pub(super) fn plain(name: &str) -> String {
    fold::unescape(name)
}

fn shape(syntax: &Syntax<'_>, id: Id) -> Option<Shape> {
    let parts = || syntax.parts(id);
    Some(match syntax.kind(id) {
        "identifier" | "shorthand_property_identifier" => Shape::Name(plain(syntax.text(id))),
        "this" => Shape::Name("this".to_owned()),
        "import" => Shape::Name("import".to_owned()),
        "member_expression" => {
            Shape::Member(syntax.field(id, "object")?, plain(syntax.text(syntax.field(id, "property")?)))
        }
        "subscript_expression" => Shape::Part(syntax.field(id, "object")?, syntax.field(id, "index")?),
        "call_expression" | "new_expression" => {
            let callee = syntax.field(id, "function").or_else(|| syntax.field(id, "constructor"))?;
            let arguments = match syntax.field(id, "arguments") {
                Some(list) if syntax.kind(list) == "arguments" => syntax.parts(list),
                Some(template) => vec![template],
                None => Vec::new(),
            };
            Shape::Call(callee, arguments)
        }
        "string" => {
            let is_part = |part: &Id| matches!(syntax.kind(*part), "string_fragment" | "escape_sequence");
            Shape::Joined(parts().into_iter().filter(is_part).collect())
        }
        "string_fragment" => Shape::Text(syntax.text(id).to_owned()),
        "escape_sequence" => Shape::Text(fold::unescape(syntax.text(id))),
        "template_string" => {
            let is_part = |part: &Id| {
                matches!(syntax.kind(*part), "string_fragment" | "escape_sequence" | "template_substitution")
            };
            Shape::Joined(parts().into_iter().filter(is_part).collect())
        }
        "template_substitution"
        | "parenthesized_expression"
        | "await_expression"
        | "spread_element"
        | "computed_property_name" => Shape::Same(*parts().first()?),
        "binary_expression" => match syntax.text(syntax.field(id, "operator")?) {
            "+" => Shape::Joined(syntax.summands(id, "binary_expression")),
            "||" | "??" | "&&" => Shape::Either(vec![syntax.field(id, "left")?, syntax.field(id, "right")?]),
            _ => return None,
        },
        "ternary_expression" => Shape::Either(vec![syntax.field(id, "consequence")?, syntax.field(id, "alternative")?]),
        "sequence_expression" => Shape::Same(*parts().last()?),
        "assignment_expression" => Shape::Same(syntax.field(id, "right")?),
        "array" => {
            Shape::Items(syntax.children(id).take(MAX_ITEMS).filter(|part| syntax.kind(*part) != "comment").collect())
        }
        "object" => Shape::Items(
            syntax
                .children(id)
                .take(MAX_ITEMS)
                .filter_map(|part| match syntax.kind(part) {
                    "pair" => syntax.field(part, "value"),
                    "shorthand_property_identifier" => Some(part),
                    _ => None,
                })
                .collect(),
        ),
        "number" => Shape::Number(number(syntax.text(id))?),
        "arrow_function" | "function_expression" | "generator_function" => Shape::Function,
        _ => return None,
    })
}

fn number(written: &str) -> Option<i64> {
    let digits: String = written.chars().take(24).filter(|digit| *digit != '_').collect();
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}
