//! Guards for the use of a session box; dropping one returns the box to the pool.

use std::sync::Arc;

use super::boxes::Maker;
use super::keeper::Pool;
use super::places::{MemberId, Ticket};

/// Exclusive use of a session box.
#[derive(Debug)]
pub struct Lease<M: Maker> {
    pub(super) pool: Arc<Pool<M>>,
    pub(super) ticket: Ticket,
    pub(super) id: MemberId,
    pub(super) resident: Arc<M::Resident>,
}

impl<M: Maker> Lease<M> {
    pub fn resident(&self) -> &Arc<M::Resident> {
        &self.resident
    }

    /// Keeps the box from being idle after this use, for processes that go on running. `None` if
    /// the box is ending.
    pub fn hold(&self) -> Option<Hold<M>> {
        let is_held = self.pool.change(|places, _| (places.hold(self.id), Vec::new()));
        is_held.then(|| Hold { pool: self.pool.clone(), id: self.id })
    }
}

impl<M: Maker> Drop for Lease<M> {
    fn drop(&mut self) {
        self.pool.change(|places, now| ((), places.release(self.ticket, self.id, now)));
    }
}

/// Keeps a session box from counting as idle. Others may still acquire it.
#[derive(Debug)]
pub struct Hold<M: Maker> {
    pub(super) pool: Arc<Pool<M>>,
    pub(super) id: MemberId,
}

impl<M: Maker> Drop for Hold<M> {
    fn drop(&mut self) {
        self.pool.change(|places, now| ((), places.let_go(self.id, now)));
    }
}
