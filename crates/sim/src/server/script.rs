//! Builder of scripts: operations, and jumps whose targets are set later. `hardware`, `request` and `replay`
//! use it.

use crate::engine::Op;

/// Script under construction.
#[derive(Clone, Debug, Default)]
pub struct ScriptBuilder {
    /// Operations so far.
    pub ops: Vec<Op>,
}

/// Jump whose target is not set yet.
#[must_use]
pub struct PendingJump(usize);

impl ScriptBuilder {
    /// Appends an operation.
    pub fn add(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Returns the number of the next operation.
    pub fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    /// Appends a jump, whose target [`ScriptBuilder::land`] sets later.
    pub fn jump(&mut self, op: Op) -> PendingJump {
        self.ops.push(op);
        PendingJump(self.ops.len() - 1)
    }

    /// Sets the target of `jump` to the next operation.
    pub fn land(&mut self, jump: PendingJump) {
        let here = self.here();
        if let Some(to) = self.ops[jump.0].target() {
            *to = here;
        }
    }
}
