//! What an expression can be: paths through modules and members, texts, numbers, lists.
//!
//! Answers are kept for every node, and nodes are asked in an order that has parts first; so each question is short. Where
//! a chain is longer than that nevertheless (names bound to names, backwards), it ends in `?`, which is nothing known.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;

use super::fold;
use super::grammar::{Grammar, Shape};
use super::scopes::{Bound, Scopes, Step};
use super::syntax::{Id, Opens, ScopeId, Syntax, WHOLE};

pub(crate) const UNKNOWN: &str = "?";
/// How many things one expression can be, and how long their texts and paths are.
const MOST_VALUES: usize = 24;
const SHORT: usize = 256;
/// All texts that are put together while one content is read.
const MOST_MADE: usize = 8 * 1024 * 1024;
const LONGEST_PATH: usize = 160;
const DEEPEST: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Path(String),
    Text(Rc<str>),
    Texts(Rc<Vec<String>>),
    Number(i64),
    /// A list or a table that is written out.
    Items(Id),
}

impl Value {
    pub(crate) fn unknown() -> Self {
        Value::Path(UNKNOWN.to_owned())
    }

    /// Long texts are not compared letter by letter.
    fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Text(one), Value::Text(two)) if one.len() > SHORT => Rc::ptr_eq(one, two),
            (Value::Texts(one), Value::Texts(two)) => Rc::ptr_eq(one, two),
            _ => self == other,
        }
    }
}

type Values = Rc<Vec<Value>>;

pub(crate) struct Resolver<'s, 'a, G> {
    syntax: &'s Syntax<'a>,
    scopes: &'s Scopes,
    known: RefCell<Vec<Option<Values>>>,
    named: RefCell<HashMap<(ScopeId, String), Values>>,
    /// Lists of texts, once they were asked for.
    lists: RefCell<HashMap<Id, Option<Rc<Vec<String>>>>>,
    made: Cell<usize>,
    pub(crate) overflow: Cell<bool>,
    grammar: PhantomData<G>,
}

impl<'s, 'a, G: Grammar> Resolver<'s, 'a, G> {
    pub(crate) fn new(syntax: &'s Syntax<'a>, scopes: &'s Scopes) -> Self {
        let known = RefCell::new(vec![None; syntax.len()]);
        let (named, lists) = (RefCell::default(), RefCell::default());
        let (made, overflow) = (Cell::new(0), Cell::new(scopes.overflow));
        Resolver { syntax, scopes, known, named, lists, made, overflow, grammar: PhantomData }
    }

    pub(crate) fn resolve(&self, id: Id) -> Values {
        self.resolve_at(id, 0)
    }

    fn resolve_at(&self, id: Id, depth: usize) -> Values {
        let at = id.0 as usize;
        if let Some(values) = &self.known.borrow()[at] {
            return Rc::clone(values);
        }
        let unknown = Rc::new(vec![Value::unknown()]);
        if depth > DEEPEST {
            return unknown;
        }
        // Whatever asks for itself on the way gets this.
        self.known.borrow_mut()[at] = Some(unknown);
        let values = Rc::new(self.bounded(self.find(id, depth + 1)));
        self.known.borrow_mut()[at] = Some(Rc::clone(&values));
        values
    }

    /// Each once, and not too many or too long.
    fn bounded(&self, values: Vec<Value>) -> Vec<Value> {
        let mut kept: Vec<Value> = Vec::new();
        let mut has_more = false;
        for value in values {
            let is_long = matches!(&value, Value::Path(path) if path.len() > LONGEST_PATH);
            let value = if is_long { Value::unknown() } else { value };
            if kept.iter().any(|known| known.is_same(&value)) {
                continue;
            }
            // Of what no rule is about, some is enough.
            let is_known = matches!(&value, Value::Path(path) if G::index().knows(path));
            if kept.len() >= MOST_VALUES && !is_known {
                has_more = true;
                continue;
            }
            if kept.len() >= 2 * MOST_VALUES {
                self.overflow.set(true);
                break;
            }
            kept.push(value);
        }
        if has_more && !kept.contains(&Value::unknown()) {
            kept.push(Value::unknown());
        }
        kept
    }

    fn find(&self, id: Id, depth: usize) -> Vec<Value> {
        match G::shape(self.syntax, id) {
            Shape::Name(name) => self.look_up(&name, id, depth),
            Shape::Member(base, name) => self.member(base, &name, depth),
            Shape::Part(base, key) => self.part(base, key, depth),
            Shape::Call(callee, arguments) => self.call(callee, &arguments, depth),
            Shape::Text(text) => vec![self.make(Some(text))],
            Shape::Number(number) => vec![Value::Number(number)],
            Shape::Joined(parts) => vec![self.make(self.join(&parts, depth))],
            Shape::Filled(template, parts) => {
                let parts: Option<Vec<String>> = parts.iter().map(|part| self.one_text(*part, depth)).collect();
                let filled = self.one_text(template, depth).zip(parts);
                vec![self.make(filled.and_then(|(text, parts)| fold::fill(&text, &parts)))]
            }
            Shape::Reversed(base) => {
                let text = self.one_text(base, depth).map(|text| text.chars().rev().collect());
                vec![self.make(text)]
            }
            Shape::Items(_) => vec![Value::Items(id)],
            Shape::Either(ids) => ids.iter().flat_map(|id| self.resolve_at(*id, depth).to_vec()).collect(),
            Shape::Same(inner) => self.resolve_at(inner, depth).to_vec(),
            Shape::Function => vec![Value::Path("function".to_owned())],
            Shape::Other => vec![Value::unknown()],
        }
    }

    /// A text that is not too long, as long as not too much was made already.
    fn make(&self, text: Option<String>) -> Value {
        let Some(text) = text.filter(|text| text.len() <= fold::LONGEST) else { return Value::unknown() };
        match self.made.get().checked_add(text.len()).filter(|made| *made <= MOST_MADE) {
            Some(made) => self.made.set(made),
            None => {
                self.overflow.set(true);
                return Value::unknown();
            }
        }
        Value::Text(text.into())
    }

    fn count(&self, value: Value) -> Value {
        match value {
            Value::Text(text) => self.make(Some(text.to_string())),
            other => other,
        }
    }

    /// The text that an expression is, if it is one text.
    fn one_text(&self, id: Id, depth: usize) -> Option<String> {
        match self.resolve_at(id, depth).as_slice() {
            [Value::Text(text)] => Some(text.to_string()),
            [Value::Number(number)] => Some(number.to_string()),
            _ => None,
        }
    }

    fn join(&self, parts: &[Id], depth: usize) -> Option<String> {
        let mut whole = String::new();
        for part in parts {
            whole.push_str(&self.one_text(*part, depth)?);
            if whole.len() > fold::LONGEST {
                return None;
            }
        }
        Some(whole)
    }

    fn look_up(&self, name: &str, id: Id, depth: usize) -> Vec<Value> {
        let here = self.syntax.node(id).scope;
        let mut scope = Some(here);
        let mut climbed = 0;
        while let Some(at) = scope {
            climbed += 1;
            // From very deep within, the whole text is seen and not all that is around.
            scope = self.syntax.outer(at).map(|outer| if climbed > DEEPEST { WHOLE } else { outer });
            if at != here && self.syntax.scope_opens(at) == Opens::Class {
                continue;
            }
            let Some(bindings) = self.scopes.names(at, name) else { continue };
            let mut values = self.named(at, name, depth).to_vec();
            let hides = |binding: &super::scopes::Binding| binding.sure && (at != here || binding.at < id);
            if self.scopes.is_unbound(name) || !bindings.iter().any(hides) {
                values.push(Value::Path(name.to_owned()));
            }
            return values;
        }
        let starred = self.scopes.stars.iter().take(MOST_VALUES / 2).map(|module| Value::Path(G::member(module, name)));
        std::iter::once(Value::Path(name.to_owned())).chain(starred).collect()
    }

    /// Everything that a name is bound to in a scope.
    fn named(&self, scope: ScopeId, name: &str, depth: usize) -> Values {
        let key = (scope, name.to_owned());
        if let Some(values) = self.named.borrow().get(&key) {
            return Rc::clone(values);
        }
        if depth > DEEPEST {
            return Rc::new(vec![Value::unknown()]);
        }
        self.named.borrow_mut().insert(key.clone(), Rc::new(vec![Value::unknown()]));
        let bindings = self.scopes.names(scope, name).unwrap_or_default();
        let values = bindings.iter().flat_map(|binding| self.bound(&binding.bound, depth)).collect();
        let values = Rc::new(self.bounded(values));
        self.named.borrow_mut().insert(key, Rc::clone(&values));
        values
    }

    fn bound(&self, bound: &Bound, depth: usize) -> Vec<Value> {
        match bound {
            Bound::Path(path) => vec![Value::Path(path.clone())],
            Bound::Unknown => vec![Value::unknown()],
            Bound::Value(id, steps) => {
                let mut values = self.resolve_at(*id, depth + 1).to_vec();
                for step in steps {
                    values = values.into_iter().flat_map(|value| self.take(value, step, depth + 1)).collect();
                }
                values
            }
        }
    }

    fn take(&self, value: Value, step: &Step, depth: usize) -> Vec<Value> {
        match (value, step) {
            (Value::Path(path), Step::Member(name)) => vec![Value::Path(member_of::<G>(&path, name))],
            (Value::Path(path), Step::Element) => vec![Value::Path(suffixed(&path, "[]"))],
            (Value::Path(path), Step::Made) => vec![Value::Path(suffixed(&path, "()"))],
            (Value::Items(list), Step::Element | Step::Member(_)) => self.elements(list, depth),
            _ => vec![Value::unknown()],
        }
    }

    fn elements(&self, list: Id, depth: usize) -> Vec<Value> {
        match G::shape(self.syntax, list) {
            Shape::Items(items) => items.iter().flat_map(|item| self.resolve_at(*item, depth).to_vec()).collect(),
            _ => vec![Value::unknown()],
        }
    }

    fn member(&self, base: Id, name: &str, depth: usize) -> Vec<Value> {
        let mut values = Vec::new();
        for value in self.resolve_at(base, depth).iter() {
            values.push(match value {
                Value::Path(path) => Value::Path(member_of::<G>(path, name)),
                _ => Value::Path(format!("{UNKNOWN}.{name}")),
            });
        }
        if let Shape::Name(object) = G::shape(self.syntax, base)
            && matches!(object.as_str(), "self" | "cls" | "this")
        {
            values.extend(self.scopes.own(name).iter().flat_map(|bound| self.bound(bound, depth)));
        }
        values
    }

    fn part(&self, base: Id, key: Id, depth: usize) -> Vec<Value> {
        let mut values = Vec::new();
        let keys = self.resolve_at(key, depth);
        for value in self.resolve_at(base, depth).iter() {
            for key in keys.iter() {
                match (value, key) {
                    (Value::Path(path), Value::Text(name)) => values.push(match G::part(path, name) {
                        Some(path) => Value::Path(path),
                        None => Value::Path(suffixed(path, "[]")),
                    }),
                    (Value::Path(path), _) => values.push(Value::Path(suffixed(path, "[]"))),
                    (Value::Items(list), Value::Number(at)) => {
                        let Shape::Items(items) = G::shape(self.syntax, *list) else { continue };
                        let item = usize::try_from(*at).ok().and_then(|at| items.get(at));
                        values.extend(item.map(|item| self.resolve_at(*item, depth).to_vec()).unwrap_or_default());
                    }
                    (Value::Items(list), Value::Text(name)) => {
                        values.extend(self.elements(*list, depth));
                        values.extend(G::part(UNKNOWN, name).map(Value::Path));
                    }
                    (Value::Items(list), _) => values.extend(self.elements(*list, depth)),
                    (_, Value::Text(name)) => {
                        values.push(G::part(UNKNOWN, name).map_or_else(Value::unknown, Value::Path));
                    }
                    _ => values.push(Value::unknown()),
                }
            }
        }
        values
    }

    fn call(&self, callee: Id, arguments: &[Id], depth: usize) -> Vec<Value> {
        let arguments: Vec<Vec<Value>> =
            arguments.iter().take(64).map(|argument| self.argument(*argument, depth)).collect();
        if let Shape::Member(base, method) = G::shape(self.syntax, callee) {
            let own: Vec<Value> = self
                .resolve_at(base, depth)
                .iter()
                .filter_map(|value| match value {
                    Value::Text(text) => G::text_method(text, &method, &arguments).map(|made| self.count(made)),
                    Value::Texts(texts) => fold::texts_method(texts, &method, &arguments),
                    Value::Items(list) => fold::texts_method(&self.list(*list, depth)?, &method, &arguments),
                    Value::Path(_) | Value::Number(_) => None,
                })
                .collect();
            if !own.is_empty() {
                return own;
            }
        }
        let called = self.resolve_at(callee, depth);
        let results = called.iter().map(|value| match value {
            Value::Path(path) => match G::result(path, &arguments) {
                Some(value) => self.count(value),
                None => Value::Path(suffixed(path, "()")),
            },
            _ => Value::unknown(),
        });
        results.collect()
    }

    /// What an argument can be; a list of texts is taken as such.
    pub(crate) fn argument(&self, id: Id, depth: usize) -> Vec<Value> {
        let values = self.resolve_at(id, depth);
        let spread = |value: &Value| match value {
            Value::Items(list) => self.list(*list, depth).map_or_else(|| value.clone(), Value::Texts),
            other => other.clone(),
        };
        values.iter().map(spread).collect()
    }

    fn list(&self, list: Id, depth: usize) -> Option<Rc<Vec<String>>> {
        if let Some(known) = self.lists.borrow().get(&list) {
            return known.clone();
        }
        let Shape::Items(items) = G::shape(self.syntax, list) else { return None };
        let texts: Option<Vec<String>> = items.iter().map(|item| self.piece(*item, depth)).collect();
        let texts = texts.map(Rc::new);
        self.lists.borrow_mut().insert(list, texts.clone());
        texts
    }

    /// A text in a list, or the character of a number in it.
    fn piece(&self, id: Id, depth: usize) -> Option<String> {
        match self.resolve_at(id, depth).as_slice() {
            [Value::Text(text)] => Some(text.to_string()),
            [Value::Number(number)] => fold::character(*number),
            _ => None,
        }
    }
}

fn member_of<G: Grammar>(path: &str, name: &str) -> String {
    // What is not known stays so, however long its chain.
    let base = if path.starts_with(UNKNOWN) && path != UNKNOWN && !G::member(path, name).starts_with(UNKNOWN) {
        return G::member(path, name);
    } else if path.starts_with(UNKNOWN) {
        UNKNOWN
    } else {
        path
    };
    G::member(base, name)
}

fn suffixed(path: &str, suffix: &str) -> String {
    if path == UNKNOWN { path.to_owned() } else { format!("{path}{suffix}") }
}
