//! Finds the possible values of an expression: paths through modules and members, texts, numbers,
//! lists, functions.
//!
//! Results are cached: per node, per name in a scope, per member of `self`, per list and per
//! function. Nodes are resolved children first, so recursion stays shallow; where it does not
//! (names bound to later names), it ends at a fixed depth with `?` for an unknown value. Work is
//! counted; without work left all values are unknown.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;

use super::arguments::{Arguments, length};
use super::fold;
use super::grammar::{Grammar, Shape};
use super::scopes::{Bound, Scopes, Step};
use super::syntax::{Id, Opens, ScopeId, Syntax, WHOLE};
use super::value::{Gathered, UNKNOWN, Value, Values};

const DEEPEST: usize = 100;
/// Arguments of a call that are examined.
pub(super) const MAX_ARGUMENTS: usize = 64;
/// Work for the first result of a node, and for a cached one.
const PER_ANSWER: usize = 20;
const PER_LOOK: usize = 4;

pub(crate) struct Resolver<'s, 'a, G> {
    syntax: &'s Syntax<'a>,
    scopes: &'s Scopes,
    known: RefCell<Vec<Option<Values>>>,
    named: RefCell<HashMap<(ScopeId, String), Values>>,
    own: RefCell<HashMap<String, Values>>,
    items: RefCell<HashMap<Id, Rc<[Id]>>>,
    elements: RefCell<HashMap<Id, Values>>,
    returned: RefCell<HashMap<Id, Values>>,
    /// Cached results of `list`.
    lists: RefCell<HashMap<Id, Option<Rc<Vec<String>>>>>,
    unknown: Values,
    pub(crate) overflow: Cell<bool>,
    grammar: PhantomData<G>,
}

impl<'s, 'a, G: Grammar> Resolver<'s, 'a, G> {
    pub(crate) fn new(syntax: &'s Syntax<'a>, scopes: &'s Scopes) -> Self {
        Resolver {
            syntax,
            scopes,
            known: RefCell::new(vec![None; syntax.len()]),
            named: RefCell::default(),
            own: RefCell::default(),
            items: RefCell::default(),
            elements: RefCell::default(),
            returned: RefCell::default(),
            lists: RefCell::default(),
            unknown: Rc::new(vec![Value::unknown()]),
            overflow: Cell::new(scopes.overflow),
            grammar: PhantomData,
        }
    }

    pub(crate) fn resolve(&self, id: Id) -> Values {
        self.resolve_at(id, 0)
    }

    fn resolve_at(&self, id: Id, depth: usize) -> Values {
        let at = id.0 as usize;
        if let Some(values) = &self.known.borrow()[at] {
            return Rc::clone(values);
        }
        if depth > DEEPEST || !self.syntax.work.spend(PER_ANSWER) {
            return self.unknown();
        }
        // The result for a cycle.
        self.known.borrow_mut()[at] = Some(self.unknown());
        let values = self.find(id, depth + 1);
        self.known.borrow_mut()[at] = Some(Rc::clone(&values));
        values
    }

    fn unknown(&self) -> Values {
        Rc::clone(&self.unknown)
    }

    /// The values that `fill` adds, each once and limited in number.
    fn gather(&self, fill: impl FnOnce(&mut Gathered<'_>)) -> Values {
        let mut gathered = Gathered::new(self.syntax.work, G::index());
        fill(&mut gathered);
        let (values, overflow) = gathered.finish();
        if overflow {
            self.overflow.set(true);
        }
        values
    }

    /// A cached result. Inside of its own computation it is unknown.
    fn once<K: Clone + Eq + std::hash::Hash>(
        &self,
        kept: &RefCell<HashMap<K, Values>>,
        key: K,
        depth: usize,
        fill: impl FnOnce(&mut Gathered<'_>),
    ) -> Values {
        if let Some(values) = kept.borrow().get(&key) {
            return Rc::clone(values);
        }
        if depth > DEEPEST || !self.syntax.work.spend(PER_ANSWER) {
            return self.unknown();
        }
        kept.borrow_mut().insert(key.clone(), self.unknown());
        let values = self.gather(fill);
        kept.borrow_mut().insert(key, Rc::clone(&values));
        values
    }

    fn find(&self, id: Id, depth: usize) -> Values {
        let one = |value: Value| Rc::new(vec![value]);
        match G::shape(self.syntax, id) {
            Shape::Name(name) => self.look_up(&name, id, depth),
            Shape::Member(base, name) => self.member(base, &name, depth),
            Shape::Part(base, key) => self.part(base, key, depth),
            Shape::Call(callee, arguments) => self.call(callee, &arguments, depth),
            Shape::Text(text) => one(self.make(Some(text))),
            Shape::Number(number) => one(Value::Number(number)),
            Shape::Joined(parts) => one(self.make(self.join(&parts, depth))),
            Shape::Filled(template, parts) => {
                let parts: Option<Vec<String>> = parts.iter().map(|part| self.one_text(*part, depth)).collect();
                let filled = self.one_text(template, depth).zip(parts);
                one(self.make(filled.and_then(|(text, parts)| fold::fill(&text, &parts))))
            }
            Shape::Reversed(base) => {
                let text = self.one_text(base, depth).map(|text| text.chars().rev().collect());
                one(self.make(text))
            }
            Shape::Items(_) => one(Value::Items(id)),
            Shape::Either(ids) => self.gather(|values| {
                ids.iter().for_each(|id| values.extend(&*self.resolve_at(*id, depth)));
            }),
            Shape::Same(inner) => self.resolve_at(inner, depth),
            Shape::Function => Rc::new(vec![Value::path("function"), Value::Function(id)]),
            Shape::Other => self.unknown(),
        }
    }

    /// A text, unless it is too long or no work is left for it.
    fn make(&self, text: Option<String>) -> Value {
        match text.filter(|text| text.len() <= fold::MAX_LEN) {
            Some(text) if self.syntax.work.spend_text(text.len()) => Value::Text(text.into()),
            _ => Value::unknown(),
        }
    }

    /// The expression's text, if it has exactly one value.
    fn one_text(&self, id: Id, depth: usize) -> Option<String> {
        match self.resolve_at(id, depth).as_slice() {
            [Value::Text(text)] => self.syntax.work.spend_text(text.len()).then(|| text.to_string()),
            [Value::Number(number)] => Some(number.to_string()),
            _ => None,
        }
    }

    fn join(&self, parts: &[Id], depth: usize) -> Option<String> {
        let mut whole = String::new();
        for part in parts {
            whole.push_str(&self.one_text(*part, depth)?);
            if whole.len() > fold::MAX_LEN {
                return None;
            }
        }
        Some(whole)
    }

    fn look_up(&self, name: &str, id: Id, depth: usize) -> Values {
        let here = self.syntax.node(id).scope;
        let mut scope = Some(here);
        let mut climbed = 0;
        while let Some(at) = scope {
            climbed += 1;
            if !self.syntax.work.spend_text(8 * PER_LOOK + name.len()) {
                return self.unknown();
            }
            // From a very deeply nested scope the search continues at the whole text.
            scope = self.syntax.outer(at).map(|outer| if climbed > DEEPEST { WHOLE } else { outer });
            if at != here && self.syntax.scope_opens(at) == Opens::Class {
                continue;
            }
            let Some(bindings) = self.scopes.names(at, name) else { continue };
            let named = self.once(&self.named, (at, name.to_owned()), depth, |values| {
                for bound in &bindings.all {
                    if values.is_full() {
                        break;
                    }
                    self.bound(bound, depth, values);
                }
            });
            let is_hidden = bindings.sure.is_some_and(|sure| at != here || sure < id);
            if is_hidden && !self.scopes.is_unbound(name) {
                return named;
            }
            return self.gather(|values| {
                values.extend(&*named);
                values.add(Value::path(name));
            });
        }
        self.gather(|values| {
            values.add(Value::path(name));
            self.scopes.stars().iter().for_each(|module| values.add(Value::path(&G::member(module, name))));
        })
    }

    fn bound(&self, bound: &Bound, depth: usize, values: &mut Gathered<'_>) {
        match bound {
            Bound::Path(path) => values.add(Value::path(path)),
            Bound::Unknown => values.add(Value::unknown()),
            Bound::Function(id) => values.extend([&Value::path(G::FUNCTION), &Value::Function(*id)]),
            Bound::Value(id, steps) => {
                let mut reached = self.resolve_at(*id, depth + 1);
                for step in steps {
                    reached = self.gather(|values| {
                        reached.iter().for_each(|value| self.take(value, step, depth + 1, values));
                    });
                }
                values.extend(&*reached);
            }
        }
    }

    fn take(&self, value: &Value, step: &Step, depth: usize, values: &mut Gathered<'_>) {
        match (value, step) {
            (Value::Path(path), Step::Member(name)) => values.add(Value::path(&member_of::<G>(path, name))),
            (Value::Path(path), Step::Element) => values.add(Value::path(&suffixed(path, "[]"))),
            (Value::Path(path), Step::Made) => values.add(Value::path(&suffixed(path, "()"))),
            (Value::Items(list), Step::Element | Step::Member(_)) => values.extend(&*self.elements(*list, depth)),
            (Value::Function(id), Step::Made) => values.extend(&*self.returned(*id, depth)),
            _ => values.add(Value::unknown()),
        }
    }

    fn items(&self, list: Id) -> Rc<[Id]> {
        let find = || match G::shape(self.syntax, list) {
            Shape::Items(items) => items.into(),
            _ => Rc::default(),
        };
        Rc::clone(self.items.borrow_mut().entry(list).or_insert_with(find))
    }

    fn elements(&self, list: Id, depth: usize) -> Values {
        self.once(&self.elements, list, depth, |values| {
            self.items(list).iter().for_each(|item| values.extend(&*self.resolve_at(*item, depth)));
        })
    }

    fn returned(&self, function: Id, depth: usize) -> Values {
        self.once(&self.returned, function, depth, |values| {
            for value in self.scopes.returned(function) {
                values.extend(&*self.resolve_at(*value, depth));
            }
        })
    }

    fn member(&self, base: Id, name: &str, depth: usize) -> Values {
        let of = self.resolve_at(base, depth);
        let is_own = matches!(G::shape(self.syntax, base), Shape::Name(object)
            if matches!(object.as_str(), "self" | "cls" | "this"));
        self.gather(|values| {
            for value in of.iter() {
                match value {
                    Value::Path(path) if self.syntax.work.spend_text(name.len()) => {
                        values.add(Value::path(&member_of::<G>(path, name)));
                    }
                    Value::Function(_) => {}
                    _ => values.add(Value::path(&format!("{UNKNOWN}.{name}"))),
                }
            }
            if is_own {
                let own = self.once(&self.own, name.to_owned(), depth, |values| {
                    for bound in self.scopes.own(name) {
                        if values.is_full() {
                            break;
                        }
                        self.bound(bound, depth, values);
                    }
                });
                values.extend(&*own);
            }
        })
    }

    fn part(&self, base: Id, key: Id, depth: usize) -> Values {
        let (of, keys) = (self.resolve_at(base, depth), self.resolve_at(key, depth));
        self.gather(|values| {
            for value in of.iter() {
                for key in keys.iter() {
                    if values.is_full() {
                        return;
                    }
                    self.part_of(value, key, depth, values);
                }
            }
        })
    }

    fn part_of(&self, value: &Value, key: &Value, depth: usize, values: &mut Gathered<'_>) {
        match (value, key) {
            (Value::Path(path), Value::Text(name)) => {
                let part = G::part(path, name);
                values.add(Value::path(&part.unwrap_or_else(|| suffixed(path, "[]"))));
            }
            (Value::Path(path), _) => values.add(Value::path(&suffixed(path, "[]"))),
            (Value::Items(list), Value::Number(at)) => {
                let item = usize::try_from(*at).ok().and_then(|at| self.items(*list).get(at).copied());
                item.into_iter().for_each(|item| values.extend(&*self.resolve_at(item, depth)));
            }
            (Value::Items(list), Value::Text(name)) => {
                values.extend(&*self.elements(*list, depth));
                G::part(UNKNOWN, name).into_iter().for_each(|path| values.add(Value::path(&path)));
            }
            (Value::Items(list), _) => values.extend(&*self.elements(*list, depth)),
            (_, Value::Text(name)) => {
                let path = G::part(UNKNOWN, name);
                values.add(path.map_or_else(Value::unknown, |path| Value::path(&path)));
            }
            _ => values.add(Value::unknown()),
        }
    }

    fn call(&self, callee: Id, arguments: &[Id], depth: usize) -> Values {
        let arguments = self.arguments(arguments, depth);
        let work = self.syntax.work;
        if let Shape::Member(base, method) = G::shape(self.syntax, callee) {
            let own = self.gather(|values| {
                for value in self.resolve_at(base, depth).iter() {
                    let texts = match value {
                        Value::Texts(texts) => Some(Rc::clone(texts)),
                        Value::Items(list) => self.list(*list, depth),
                        _ => None,
                    };
                    let made = match (value, texts) {
                        (Value::Text(text), _) if text.len() <= fold::MAX_CALLED_LEN && work.spend_text(text.len()) => {
                            G::text_method(text, &method, &arguments)
                        }
                        (_, Some(texts)) if work.spend_text(length(&texts)) => {
                            fold::texts_method(&texts, &method, &arguments)
                        }
                        _ => None,
                    };
                    made.into_iter().for_each(|made| values.add(self.counted(made)));
                }
            });
            if !own.is_empty() {
                return own;
            }
        }
        let called = self.resolve_at(callee, depth);
        self.gather(|values| {
            for value in called.iter() {
                match value {
                    _ if !work.spend(PER_LOOK) => return,
                    Value::Path(path) => match G::result(path, &arguments) {
                        Some(value) => values.add(self.counted(value)),
                        None => values.add(Value::path(&suffixed(path, "()"))),
                    },
                    Value::Function(id) => values.extend(&*self.returned(*id, depth)),
                    _ => values.add(Value::unknown()),
                }
            }
        })
    }

    /// Counts the work for a text that was just computed.
    fn counted(&self, value: Value) -> Value {
        match value {
            Value::Text(text) if text.len() > fold::MAX_LEN || !self.syntax.work.spend_text(text.len()) => {
                Value::unknown()
            }
            Value::Path(path) => Value::path(&path),
            other => other,
        }
    }

    /// The possible values of arguments by position; a list of texts becomes [`Value::Texts`].
    pub(crate) fn arguments(&self, ids: &[Id], depth: usize) -> Arguments<'a> {
        let spread = |value: &Value| match value {
            Value::Items(list) => self.list(*list, depth).map_or_else(|| value.clone(), Value::Texts),
            other => other.clone(),
        };
        let argument = |id: &Id| {
            let values = self.resolve_at(*id, depth);
            self.syntax.work.spend(PER_LOOK + values.len());
            values.iter().map(spread).collect()
        };
        Arguments { values: ids.iter().take(MAX_ARGUMENTS).map(argument).collect(), work: self.syntax.work }
    }

    fn list(&self, list: Id, depth: usize) -> Option<Rc<Vec<String>>> {
        if let Some(known) = self.lists.borrow().get(&list) {
            return known.clone();
        }
        // The result for a list that contains itself.
        self.lists.borrow_mut().insert(list, None);
        let texts: Option<Vec<String>> = self.items(list).iter().map(|item| self.piece(*item, depth)).collect();
        let texts = texts.map(Rc::new);
        self.lists.borrow_mut().insert(list, texts.clone());
        texts
    }

    /// A text in a list, or the character with a number in it.
    fn piece(&self, id: Id, depth: usize) -> Option<String> {
        match self.resolve_at(id, depth).as_slice() {
            [Value::Text(text)] => self.syntax.work.spend_text(text.len()).then(|| text.to_string()),
            [Value::Number(number)] => fold::character(*number),
            _ => None,
        }
    }
}

fn member_of<G: Grammar>(path: &str, name: &str) -> String {
    // A member of an unknown value is unknown, however long the chain.
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
