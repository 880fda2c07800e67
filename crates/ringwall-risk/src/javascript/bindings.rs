//! The names that JavaScript statements bind, and their values.

use super::grammar::{module, plain};
use crate::code::scopes::{Bound, Scopes, Step};
use crate::code::syntax::{Id, ScopeId, Syntax};
use crate::code::value::MAX_PATH_LEN;

/// Maximum number of targets of one assignment.
const MAX_TARGETS: usize = 256;

type Source = Option<(Id, Vec<Step>)>;

pub(super) fn bind(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) {
    bind_some(syntax, id, scopes).unwrap_or_default();
}

fn bind_some(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) -> Option<()> {
    let scope = syntax.node(id).scope;
    match syntax.kind(id) {
        "import_statement" => bind_import(syntax, id, scopes)?,
        "variable_declarator" => {
            let parent = syntax.node(id).parent.map(|parent| syntax.kind(parent));
            let scope = if parent == Some("variable_declaration") { syntax.function_of(scope) } else { scope };
            let value = syntax.field(id, "value").map(|value| (value, Vec::new()));
            bind_target(syntax, syntax.field(id, "name")?, scope, value, scopes);
        }
        "assignment_expression" => {
            let (left, right) = (syntax.field(id, "left")?, syntax.field(id, "right")?);
            let scope = home_of(syntax, left, scope, scopes);
            bind_target(syntax, left, scope, Some((right, Vec::new())), scopes);
        }
        "for_in_statement" => {
            let left = syntax.field(id, "left")?;
            let value = Some((syntax.field(id, "right")?, vec![Step::Element]));
            bind_target(syntax, left, syntax.node(left).scope, value, scopes);
        }
        "function_declaration" | "generator_function_declaration" => {
            let name = syntax.field(id, "name")?;
            scopes.mark(name);
            scopes.bind(syntax, scope, &plain(syntax.text(name)), Bound::Function(id), id);
        }
        "class_declaration" => {
            let name = syntax.field(id, "name")?;
            scopes.mark(name);
            scopes.bind(syntax, scope, &plain(syntax.text(name)), Bound::Unknown, id);
        }
        "method_definition" => scopes.bind_own(&plain(syntax.text(syntax.field(id, "name")?)), Bound::Function(id)),
        "return_statement" => scopes.returns(syntax.function_around(id)?, *syntax.parts(id).first()?),
        "function_expression" | "class" => scopes.mark(syntax.field(id, "name")?),
        "formal_parameters" => {
            for (at, parameter) in syntax.children(id).enumerate() {
                let value = if at == 0 { handed_on(syntax, syntax.node(id).parent) } else { None };
                bind_target(syntax, parameter, scope, value, scopes);
            }
        }
        "arrow_function" => {
            let body = syntax.field(id, "body").filter(|body| syntax.kind(*body) != "statement_block");
            body.into_iter().for_each(|body| scopes.returns(id, body));
            let parameter = syntax.field(id, "parameter")?;
            bind_target(syntax, parameter, syntax.node(parameter).scope, handed_on(syntax, Some(id)), scopes);
        }
        "catch_clause" => {
            let parameter = syntax.field(id, "parameter")?;
            bind_target(syntax, parameter, syntax.node(parameter).scope, None, scopes);
        }
        _ => {}
    }
    Some(())
}

/// The value of the parameter of a callback, such as `import("x").then(x => …)`.
fn handed_on(syntax: &Syntax<'_>, function: Option<Id>) -> Source {
    let arguments = syntax.node(function?).parent?;
    let call = syntax.node(arguments).parent?;
    if syntax.kind(arguments) != "arguments" || syntax.kind(call) != "call_expression" {
        return None;
    }
    let callee = syntax.field(call, "function")?;
    let method = syntax.field(callee, "property")?;
    let object = syntax.field(callee, "object")?;
    match syntax.text(method) {
        "then" => Some((object, Vec::new())),
        "forEach" | "map" | "filter" => Some((object, vec![Step::Element])),
        _ => None,
    }
}

/// The scope of an assigned name.
fn home_of(syntax: &Syntax<'_>, target: Id, scope: ScopeId, scopes: &Scopes) -> ScopeId {
    let name = plain(syntax.text(target).get(..64).unwrap_or_else(|| syntax.text(target)));
    let mut at = Some(scope);
    for _ in 0..64 {
        let Some(here) = at.filter(|_| syntax.work.spend(4)) else { break };
        if scopes.names(here, &name).is_some() {
            return here;
        }
        at = syntax.outer(here);
    }
    crate::code::syntax::WHOLE
}

/// Binds a name or a pattern of names.
fn bind_target(syntax: &Syntax<'_>, target: Id, scope: ScopeId, value: Source, scopes: &mut Scopes) {
    let mut waiting = vec![(target, value)];
    let mut seen = 0;
    while let Some((target, value)) = waiting.pop() {
        seen += 1;
        if seen > MAX_TARGETS {
            scopes.overflow = true;
            return;
        }
        let stepped = |step: Step| match &value {
            Some((id, steps))
                if steps.len() < 8 && !matches!(&step, Step::Member(name) if name.len() > MAX_PATH_LEN) =>
            {
                let mut steps = steps.clone();
                steps.push(step);
                Some((*id, steps))
            }
            _ => None,
        };
        match syntax.kind(target) {
            "identifier" | "shorthand_property_identifier_pattern" => {
                let name = plain(syntax.text(target));
                scopes.mark(target);
                let is_short = syntax.kind(target) == "shorthand_property_identifier_pattern";
                let value = if is_short { stepped(Step::Member(name.clone())) } else { value };
                let bound = value.map_or(Bound::Unknown, |(id, steps)| Bound::Value(id, steps));
                scopes.bind(syntax, scope, &name, bound, target);
            }
            "member_expression" => {
                let object = syntax.field(target, "object").map(|object| syntax.text(object));
                if let (Some("this"), Some(name)) = (object, syntax.field(target, "property")) {
                    let bound = value.map_or(Bound::Unknown, |(id, steps)| Bound::Value(id, steps));
                    scopes.bind_own(&plain(syntax.text(name)), bound);
                }
            }
            "object_pattern" => {
                waiting.extend(syntax.children(target).take(1 + MAX_TARGETS).map(|part| (part, value.clone())))
            }
            "pair_pattern" => {
                let key = syntax.field(target, "key").map(|key| syntax.text(key)).unwrap_or_default();
                // The key may be a long computed expression.
                let key = if key.len() > MAX_PATH_LEN { "" } else { key };
                let key = plain(key.trim_matches(['\'', '"', '[', ']']));
                waiting.extend(syntax.field(target, "value").map(|inner| (inner, stepped(Step::Member(key)))));
            }
            "object_assignment_pattern" | "assignment_pattern" => {
                waiting.extend(syntax.field(target, "left").map(|inner| (inner, value.clone())));
                let default = syntax.field(target, "right").map(|right| (right, Vec::new()));
                waiting.extend(
                    syntax
                        .field(target, "left")
                        .filter(|left| syntax.kind(*left) == "identifier")
                        .map(|left| (left, default)),
                );
            }
            "array_pattern" => {
                let parts = syntax.children(target).take(1 + MAX_TARGETS);
                waiting.extend(parts.map(|part| (part, stepped(Step::Element))));
            }
            "rest_pattern" => waiting.extend(syntax.children(target).take(1).map(|inner| (inner, value.clone()))),
            _ => {}
        }
    }
}

fn source_of(syntax: &Syntax<'_>, id: Id) -> Option<String> {
    let source = syntax.field(id, "source")?;
    let name = plain(syntax.text(source).trim_matches(['"', '\'']));
    // The module becomes the prefix of every imported name, so its length is limited.
    Some(module(&name).chars().take(1 + MAX_PATH_LEN).collect())
}

fn bind_import(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) -> Option<()> {
    let module = source_of(syntax, id)?;
    let scope = syntax.node(id).scope;
    let clause = syntax.children(id).find(|child| syntax.kind(*child) == "import_clause")?;
    let whole = |name: Id, scopes: &mut Scopes| {
        scopes.mark(name);
        scopes.bind(syntax, scope, &plain(syntax.text(name)), Bound::Path(module.clone()), id);
    };
    for part in syntax.children(clause) {
        match syntax.kind(part) {
            "identifier" => whole(part, scopes),
            "namespace_import" => syntax.children(part).for_each(|name| whole(name, scopes)),
            "named_imports" => {
                for specifier in syntax.children(part) {
                    let Some(name) = syntax.field(specifier, "name") else { continue };
                    let alias = syntax.field(specifier, "alias").unwrap_or(name);
                    scopes.mark(name);
                    scopes.mark(alias);
                    let member = plain(syntax.text(name).trim_matches(['"', '\'']));
                    let path = if member == "default" { module.clone() } else { format!("{module}.{member}") };
                    scopes.bind(syntax, scope, &plain(syntax.text(alias)), Bound::Path(path), id);
                }
            }
            _ => {}
        }
    }
    Some(())
}

pub(super) fn imports(syntax: &Syntax<'_>, id: Id) -> Vec<String> {
    match syntax.kind(id) {
        "import_statement" | "export_statement" => source_of(syntax, id).into_iter().collect(),
        _ => Vec::new(),
    }
}
