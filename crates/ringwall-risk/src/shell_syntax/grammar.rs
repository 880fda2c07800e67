//! Works around the lexer of tree-sitter-bash, and finds syntax errors in its trees.

use std::borrow::Cow;

use tree_sitter::{Node, Tree};

/// The text with a space before each backslash at the start of a line, which does not change its
/// meaning: otherwise the lexer joins such a line with the previous one and reads a command on it
/// as an argument. After a line continuation nothing is inserted.
pub fn set_apart(text: &str) -> Cow<'_, str> {
    const TOGETHER: &str = "\n\\";
    if !text.contains(TOGETHER) {
        return Cow::Borrowed(text);
    }
    let mut apart = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(TOGETHER) {
        let (line, next) = rest.split_at(at);
        apart.push_str(line);
        apart.push('\n');
        let goes_on = line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        if !goes_on {
            apart.push(' ');
        }
        rest = next.get(1..).unwrap_or_default();
    }
    apart.push_str(rest);
    Cow::Owned(apart)
}

/// The first node that is malformed.
pub fn find_fault(tree: &Tree) -> Option<Node<'_>> {
    if !tree.root_node().has_error() {
        return None;
    }
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            return Some(node);
        }
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return Some(tree.root_node());
            }
        }
    }
}
