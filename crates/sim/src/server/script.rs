//! Scripts as they are written: operations, and places to go on at that are known later.

use crate::engine::Op;

/// A script that is being written.
#[derive(Clone, Debug, Default)]
pub struct Writing {
    /// What there is.
    pub ops: Vec<Op>,
}

/// A jump that does not yet know where to.
#[must_use]
pub struct Ahead(usize);

impl Writing {
    /// One more.
    pub fn add(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// The number of the next operation.
    pub fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    /// A jump to where [`Writing::land`] will say.
    pub fn jump(&mut self, op: Op) -> Ahead {
        self.ops.push(op);
        Ahead(self.ops.len() - 1)
    }

    /// `jump` goes on here.
    pub fn land(&mut self, jump: Ahead) {
        let here = self.here();
        if let Some(to) = self.ops[jump.0].target() {
            *to = here;
        }
    }
}
