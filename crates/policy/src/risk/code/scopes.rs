//! Which names are bound where, and to what.
//!
//! All bindings of a name in a scope count, whichever comes last: a value that is there at some time is there. Only a
//! builtin is hidden by order: by a binding that surely happens, and before the place where the name is used.

use std::collections::{HashMap, HashSet};

use super::syntax::{Id, ScopeId, Syntax, WHOLE};

/// From the value to what is bound.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Member(String),
    /// One of its elements.
    Element,
    /// What it makes when it is called.
    Made,
}

#[derive(Debug, Clone)]
pub(crate) enum Bound {
    Path(String),
    Value(Id, Vec<Step>),
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) bound: Bound,
    /// The node that binds.
    pub(crate) at: Id,
    pub(crate) sure: bool,
}

/// Many bindings of one name are only looked at up to this many.
pub(crate) const MOST_BINDINGS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Scopes {
    names: HashMap<ScopeId, HashMap<String, Vec<Binding>>>,
    /// Members of the object that a method belongs to, whatever object that is.
    own: HashMap<String, Vec<Bound>>,
    /// Names that are those of the whole text, where a scope says so.
    shared: HashSet<(ScopeId, String)>,
    unbound: HashSet<String>,
    /// Nodes that are no expressions of their own.
    marked: HashSet<Id>,
    /// Modules whose names are all imported.
    pub(crate) stars: Vec<String>,
    pub(crate) overflow: bool,
}

impl Scopes {
    pub(crate) fn bind(&mut self, syntax: &Syntax<'_>, scope: ScopeId, name: &str, bound: Bound, at: Id) {
        let key = (scope, name.to_owned());
        let scope = if self.shared.contains(&key) { WHOLE } else { scope };
        let sure = !syntax.node(at).conditional;
        let known = self.names.entry(scope).or_default().entry(key.1).or_default();
        if known.len() < MOST_BINDINGS {
            known.push(Binding { bound, at, sure });
        } else if !matches!(bound, Bound::Unknown) {
            self.overflow = true;
        }
    }

    pub(crate) fn bind_own(&mut self, name: &str, bound: Bound) {
        let known = self.own.entry(name.to_owned()).or_default();
        if known.len() < MOST_BINDINGS {
            known.push(bound);
        }
    }

    pub(crate) fn share(&mut self, scope: ScopeId, name: &str) {
        self.shared.insert((scope, name.to_owned()));
    }

    pub(crate) fn unbind(&mut self, name: &str) {
        self.unbound.insert(name.to_owned());
    }

    pub(crate) fn mark(&mut self, id: Id) {
        self.marked.insert(id);
    }

    pub(crate) fn is_marked(&self, id: Id) -> bool {
        self.marked.contains(&id)
    }

    pub(crate) fn own(&self, name: &str) -> &[Bound] {
        self.own.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn names(&self, scope: ScopeId, name: &str) -> Option<&[Binding]> {
        self.names.get(&scope)?.get(name).map(Vec::as_slice)
    }

    pub(crate) fn is_unbound(&self, name: &str) -> bool {
        self.unbound.contains(name)
    }
}
