//! Names in reach.

use std::collections::HashMap;

use crate::graph::ValueId;

/// Nested scopes of names, the innermost last. A name may stand for nothing: an input that a call leaves out.
pub(super) struct Scopes {
    scopes: Vec<HashMap<String, Option<ValueId>>>,
}

impl Scopes {
    pub(super) fn new() -> Self {
        Scopes { scopes: Vec::new() }
    }

    pub(super) fn open(&mut self) {
        self.scopes.push(HashMap::new());
    }

    pub(super) fn close(&mut self) {
        self.scopes.pop();
    }

    pub(super) fn define(&mut self, name: String, id: Option<ValueId>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, id);
        }
    }

    pub(super) fn defined_here(&self, name: &str) -> bool {
        self.scopes.last().is_some_and(|scope| scope.contains_key(name))
    }

    /// What a name stands for: `None` if it is not in reach, `Some(None)` if it stands for nothing.
    pub(super) fn get(&self, name: &str) -> Option<Option<ValueId>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }
}
