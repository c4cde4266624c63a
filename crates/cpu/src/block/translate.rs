//! Translation of instructions to the operations of a block.

use super::{Block, BlockIndex, Blocks, ExitPoint, MicroOperation, NO_BLOCK, NO_EXIT};
use crate::decode::{Instruction, Operation, decode};
use crate::memory::{Fault, Memory};
use crate::register::Register;

/// Continuation of a block behind an instruction.
enum Next {
    /// The next instruction is at this address and belongs to the block.
    Continue(u64),
    /// The block ends, and control continues at a known address.
    End(u64),
    /// The block ends with an operation that determines the next address or leaves the interpreter.
    Leave,
}

impl Blocks {
    /// Decodes a block of at most `limit` instructions and appends it to the list.
    ///
    /// # Errors
    ///
    /// The first instruction cannot be fetched. If a later one cannot, the block ends before it.
    pub(super) fn translate<M: Memory>(
        &mut self,
        start: u64,
        limit: u32,
        memory: &mut M,
    ) -> Result<BlockIndex, Fault> {
        let first = self.operations.len();
        let addresses = self.addresses.len();
        let mut bits = fetch(memory, start)?;
        let mut address = start;
        let mut behind;
        let mut number = 0;
        let exit = loop {
            let instruction = decode(bits);
            self.addresses.push(address);
            behind = address.wrapping_add(instruction.length.into());
            let next = self.append::<M>((first, start), &instruction, address, number);
            number += 1;
            match next {
                Next::Leave => break NO_EXIT,
                Next::End(target) => break self.exit_or_spin(first, start, target),
                Next::Continue(following) => {
                    address = following;
                    if number == limit || is_elsewhere::<M>(start, address) {
                        break self.exit_to(address);
                    }
                    match fetch(memory, address) {
                        Ok(following) => bits = following,
                        Err(_) => break self.exit_to(address),
                    }
                }
            }
        };
        self.addresses.push(behind);
        self.list.push(Block {
            start,
            first: first as u32,
            end: self.operations.len() as u32,
            instructions: number,
            addresses: addresses as u32,
            exit,
        });
        Ok((self.list.len() - 1) as BlockIndex)
    }

    /// Appends an instruction's operation to the block of a first operation and a start address.
    fn append<M: Memory>(
        &mut self,
        (first, start): (usize, u64),
        instruction: &Instruction,
        address: u64,
        number: u32,
    ) -> Next {
        let following = address.wrapping_add(instruction.length.into());
        let target = address.wrapping_add(instruction.immediate as u64);
        let mut operation = micro_operation(instruction, number);
        match instruction.operation {
            Operation::Lui => self.append_constant(operation, instruction.immediate as u64),
            Operation::Auipc => self.append_constant(operation, target),
            Operation::Addi if instruction.rs1 == Register::R0 => {
                self.append_constant(operation, instruction.immediate as u64);
            }
            Operation::Addi | Operation::Addiw => match self.constant_of(first, instruction.rs1) {
                Some(constant) => {
                    let sum = constant.wrapping_add(instruction.immediate as u64);
                    let is_word = instruction.operation == Operation::Addiw;
                    self.append_constant(operation, if is_word { sum as i32 as i64 as u64 } else { sum });
                }
                None => self.operations.push(operation),
            },
            Operation::Jal => {
                if operation.rd != Register::Sink {
                    self.append_constant(operation, following);
                }
                // A timed memory is told of consecutive instructions only.
                return if M::IS_TIMED || !self.is_caching {
                    Next::End(target)
                } else {
                    Next::Continue(target)
                };
            }
            Operation::Beq
            | Operation::Bne
            | Operation::Blt
            | Operation::Bge
            | Operation::Bltu
            | Operation::Bgeu => {
                self.operations.push(operation);
                let exit = self.exit_or_spin(first, start, target);
                if let Some(branch) = self.operations.last_mut() {
                    branch.immediate = exit.into();
                }
                return if M::IS_TIMED { Next::End(following) } else { Next::Continue(following) };
            }
            Operation::Jalr => {
                if let Some(base) = self.constant_of(first, instruction.rs1) {
                    let target = base.wrapping_add(instruction.immediate as u64) & !1;
                    if operation.rd != Register::Sink {
                        self.append_constant(operation, following);
                    }
                    return if M::IS_TIMED || !self.is_caching {
                        Next::End(target)
                    } else {
                        Next::Continue(target)
                    };
                }
                self.operations.push(operation);
                return Next::Leave;
            }
            Operation::Ecall | Operation::Ebreak | Operation::Illegal => {
                operation.immediate = instruction.bits.into();
                self.operations.push(operation);
                return Next::Leave;
            }
            Operation::FenceI => {
                self.operations.push(operation);
                return Next::End(following);
            }
            _ => self.operations.push(operation),
        }
        Next::Continue(following)
    }

    /// Appends an operation that sets its destination to a constant.
    fn append_constant(&mut self, operation: MicroOperation, value: u64) {
        self.operations.push(MicroOperation {
            operation: Operation::Constant,
            immediate: value as i64,
            ..operation
        });
    }

    /// Returns a register's value if the block's last operation sets it to a constant.
    fn constant_of(&self, first: usize, register: Register) -> Option<u64> {
        let last = self.operations[first..].last()?;
        (last.operation == Operation::Constant && last.rd == register).then_some(last.immediate as u64)
    }

    /// Makes an exit point to an address.
    fn exit_to(&mut self, target: u64) -> u32 {
        self.exits.push(ExitPoint { target, block: NO_BLOCK, is_spin: false });
        (self.exits.len() - 1) as u32
    }

    /// Makes an exit point behind the block's last operation, and marks it if it closes a loop whose iterations are the same.
    fn exit_or_spin(&mut self, first: usize, start: u64, target: u64) -> u32 {
        let is_spin = self.is_caching && target == start && is_repeatable(&self.operations[first..]);
        self.exits.push(ExitPoint { target, block: NO_BLOCK, is_spin });
        (self.exits.len() - 1) as u32
    }
}

/// Returns true if operations, executed again, leave registers and memory as they are: they only load and compute, and
/// none of them uses what a later one, or itself, had computed the time before.
fn is_repeatable(operations: &[MicroOperation]) -> bool {
    let bit = |register: Register| if register == Register::R0 { 0 } else { 1_u64 << register as u32 };
    let all = operations.iter().fold(0, |set, operation| set | written(operation));
    let mut so_far = 0;
    operations.iter().all(|operation| {
        let sources = match operation.operation {
            Operation::Constant => 0,
            _ => bit(operation.rs1) | bit(operation.rs2),
        };
        let is_same = sources & all & !so_far == 0;
        so_far |= written(operation);
        is_same && loads_or_computes(operation.operation)
    })
}

/// Returns the set of the register that an operation of [`loads_or_computes`] writes.
fn written(operation: &MicroOperation) -> u64 {
    use Operation as O;
    let writes_nothing =
        matches!(operation.operation, O::Beq | O::Bne | O::Blt | O::Bge | O::Bltu | O::Bgeu | O::Fence);
    if writes_nothing { 0 } else { 1 << operation.rd as u32 }
}

/// Returns true for operations that write nothing but an integer register, which depends on integer registers and memory
/// alone, and for branches and fences.
fn loads_or_computes(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::Constant
            | O::Fence
            | O::Beq
            | O::Bne
            | O::Blt
            | O::Bge
            | O::Bltu
            | O::Bgeu
            | O::Lb
            | O::Lh
            | O::Lw
            | O::Ld
            | O::Lbu
            | O::Lhu
            | O::Lwu
            | O::Addi
            | O::Slti
            | O::Sltiu
            | O::Xori
            | O::Ori
            | O::Andi
            | O::Slli
            | O::Srli
            | O::Srai
            | O::Addiw
            | O::Slliw
            | O::Srliw
            | O::Sraiw
            | O::Add
            | O::Sub
            | O::Sll
            | O::Slt
            | O::Sltu
            | O::Xor
            | O::Srl
            | O::Sra
            | O::Or
            | O::And
            | O::Addw
            | O::Subw
            | O::Sllw
            | O::Srlw
            | O::Sraw
    )
}

/// Returns whether a timed memory's block must end before an address since it is in another page than the
/// block's start.
fn is_elsewhere<M: Memory>(start: u64, address: u64) -> bool {
    M::IS_TIMED && start / crate::memory::PAGE_BYTES != address / crate::memory::PAGE_BYTES
}

/// Returns the operation of an instruction.
fn micro_operation(instruction: &Instruction, number: u32) -> MicroOperation {
    let writes_integer = instruction.operation.row().is_some_and(|row| row.format.writes_integer());
    let rd = if writes_integer && instruction.rd == Register::R0 { Register::Sink } else { instruction.rd };
    let is_fused_multiply =
        instruction.operation.row().is_some_and(|row| row.format == crate::decode::Format::Fused);
    MicroOperation {
        immediate: if is_fused_multiply { instruction.rs3.number().into() } else { instruction.immediate },
        operation: instruction.operation,
        rd,
        rs1: instruction.rs1,
        rs2: instruction.rs2,
        rounding: instruction.rounding,
        number: number as u8,
    }
}

/// Reads the bits of the instruction at an address.
pub(crate) fn fetch<M: Memory>(memory: &mut M, address: u64) -> Result<u32, Fault> {
    let lower = memory.fetch(address)?;
    if lower & 3 != 3 {
        return Ok(lower.into());
    }
    let upper = memory.fetch(address.wrapping_add(2))?;
    Ok(u32::from(upper) << 16 | u32::from(lower))
}
