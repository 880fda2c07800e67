//! Guards for the use of a session box; dropping one returns the box to the pool.

use std::sync::Arc;

use super::boxes::PoolBoxes;
use super::keeper::Pool;
use super::slots::{MemberId, Ticket};

/// Exclusive use of a session box.
#[derive(Debug)]
pub struct Lease<M: PoolBoxes> {
    pub(super) pool: Arc<Pool<M>>,
    pub(super) ticket: Ticket,
    pub(super) id: MemberId,
    pub(super) session_box: Arc<M::SessionBox>,
}

impl<M: PoolBoxes> Lease<M> {
    pub fn session_box(&self) -> &Arc<M::SessionBox> {
        &self.session_box
    }

    /// Keeps the box from being idle after this use, for processes that go on running. `None` if
    /// the box is ending.
    pub fn hold(&self) -> Option<Hold<M>> {
        let is_held = self.pool.change(|slots, _| (slots.hold(self.id), Vec::new()));
        is_held.then(|| Hold { pool: self.pool.clone(), id: self.id })
    }
}

impl<M: PoolBoxes> Drop for Lease<M> {
    fn drop(&mut self) {
        self.pool.change(|slots, now| ((), slots.release(self.ticket, self.id, now)));
    }
}

/// Keeps a session box from counting as idle. Others may still acquire it.
#[derive(Debug)]
pub struct Hold<M: PoolBoxes> {
    pub(super) pool: Arc<Pool<M>>,
    pub(super) id: MemberId,
}

impl<M: PoolBoxes> Drop for Hold<M> {
    fn drop(&mut self) {
        self.pool.change(|slots, now| ((), slots.let_go(self.id, now)));
    }
}
