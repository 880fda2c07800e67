//! The possible values of an expression, limited in number.

use std::rc::Rc;

use super::syntax::Id;
use crate::rule::Index;
use crate::work::Work;

pub(crate) const UNKNOWN: &str = "?";
/// Maximum number of values of an expression (twice as many if a rule is about them), and maximum
/// length of a path.
const MAX_VALUES: usize = 24;
pub(crate) const MAX_PATH_LEN: usize = 160;
/// Longer texts are compared by identity.
const SHORT: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Path(Rc<str>),
    Text(Rc<str>),
    Texts(Rc<Vec<String>>),
    Number(i64),
    /// A list or a table literal.
    Items(Id),
    /// A function with its body.
    Function(Id),
}

pub(crate) type Values = Rc<Vec<Value>>;

impl Value {
    pub(crate) fn unknown() -> Self {
        Value::path(UNKNOWN)
    }

    /// A path longer than the names in all rules becomes unknown.
    pub(crate) fn path(path: &str) -> Self {
        Value::Path(if path.len() > MAX_PATH_LEN { UNKNOWN.into() } else { path.into() })
    }

    /// Long texts are not compared by content.
    fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Text(one), Value::Text(two)) if one.len() > SHORT => Rc::ptr_eq(one, two),
            (Value::Texts(one), Value::Texts(two)) => Rc::ptr_eq(one, two),
            _ => self == other,
        }
    }
}

/// Collects distinct values up to a limit.
pub(crate) struct Gathered<'w> {
    work: &'w Work,
    index: &'static Index,
    kept: Vec<Value>,
    has_more: bool,
    overflow: bool,
}

impl<'w> Gathered<'w> {
    pub(crate) fn new(work: &'w Work, index: &'static Index) -> Self {
        Gathered { work, index, kept: Vec::new(), has_more: false, overflow: false }
    }

    pub(crate) fn extend<'v>(&mut self, values: impl IntoIterator<Item = &'v Value>) {
        values.into_iter().for_each(|value| self.add(value.clone()));
    }

    pub(crate) fn add(&mut self, value: Value) {
        if self.overflow || !self.work.spend(4 + self.kept.len() / 4) {
            self.has_more = true;
            return;
        }
        if self.kept.iter().any(|known| known.is_same(&value)) {
            return;
        }
        // Values that no rule is about are kept up to the lower limit.
        let is_known = matches!(&value, Value::Path(path) if self.index.knows(path));
        if self.kept.len() >= MAX_VALUES && !is_known {
            self.has_more = true;
        } else if self.kept.len() >= 2 * MAX_VALUES {
            self.overflow = true;
        } else {
            self.kept.push(value);
        }
    }

    /// True if no further value would be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.overflow || self.work.is_spent()
    }

    /// The values, and whether too many relevant ones were found.
    pub(crate) fn finish(mut self) -> (Values, bool) {
        let unknown = Value::unknown();
        if self.has_more && !self.kept.contains(&unknown) {
            self.kept.push(unknown);
        }
        (Rc::new(self.kept), self.overflow)
    }
}
