//! The interpreter: executes the operations of blocks, one after the other.

use super::control::Change;
use super::{Exit, Hart};
use crate::block::{Block, Blocks, MicroOperation, NO_BLOCK, NO_EXIT};
use crate::decode::Operation;
use crate::float::{self, Double, Rounding, Single};
use crate::memory::{Access, AtomicOperation, Entry, Fault, FenceKind, Memory, Width};
use crate::register::Register;

impl Hart {
    /// Runs the hart until it has retired `budget` instructions or something else stops it.
    ///
    /// `blocks` must always be used with the same memory. The hart's registers, [`Hart::retired`] and the
    /// memory afterwards depend on nothing but what they were before: neither on the blocks nor on how a run
    /// is divided into calls.
    pub fn run<M: Memory>(&mut self, memory: &mut M, blocks: &mut Blocks, budget: u64) -> Exit {
        // Bit 0 of an address is ignored, as JALR ignores it.
        self.pc &= !1;
        let exit = interpret(self, memory, blocks, budget);
        self.x[Register::Sink as usize] = 0;
        exit
    }
}

/// Point in a block at which the interpreter is left.
#[derive(Clone, Copy)]
struct Position<'a> {
    /// Block.
    block: &'a Block,
    /// Instructions that may be retired, with those of the block that have been.
    left: u64,
    /// Instructions that may be retired in all.
    budget: u64,
}

/// Runs a hart.
///
/// This is one function as long as the instruction set, so that the state of the loop stays in the host's
/// registers.
fn interpret<M: Memory>(hart: &mut Hart, memory: &mut M, blocks: &mut Blocks, budget: u64) -> Exit {
    let mut left = budget;
    blocks.synchronise(memory.code_version());
    let mut index = match begin(hart, memory, blocks, left) {
        Ok(index) => index,
        Err(exit) => return leave(hart, budget - left, exit),
    };
    loop {
        if !blocks.synchronise(memory.code_version()) {
            // The block is removed. Its address is known: `hart.pc` is set whenever a store may have changed
            // the code.
            index = match begin(hart, memory, blocks, left) {
                Ok(index) => index,
                Err(exit) => return leave(hart, budget - left, exit),
            };
        }
        let block = blocks.block(index);
        let at = Position { block: &block, left, budget };
        let mut operations = blocks.operations(&block);
        let mut done = block.instructions;
        let mut exit = block.exit;
        if left < u64::from(done) {
            if left == 0 {
                hart.pc = block.start;
                return leave(hart, budget, Exit::Budget);
            }
            // Only the beginning of the block may be executed.
            done = left as u32;
            operations =
                &operations[..operations.partition_point(|operation| u32::from(operation.number) < done)];
            exit = NO_EXIT;
            hart.pc = blocks.address(&block, done);
        }
        if M::IS_TIMED {
            let bytes = blocks.address(&block, done).wrapping_sub(block.start) as u32;
            memory.enter(Entry { address: block.start, bytes, instructions: done });
        }
        for op in operations {
            /// Value of the integer register that an operand names.
            macro_rules! x {
                ($register:ident) => {
                    hart.x[op.$register as usize]
                };
            }
            /// Value of the floating-point register that an operand names.
            macro_rules! f {
                ($register:ident) => {
                    hart.f[op.$register as usize]
                };
            }
            /// Access to the address in rs1 plus the immediate.
            macro_rules! access {
                ($width:ident) => {
                    Access {
                        address: x!(rs1).wrapping_add(op.immediate as u64),
                        width: Width::$width,
                        position: op.number.into(),
                    }
                };
            }
            /// Result of an access, or the interpreter's end.
            macro_rules! try_access {
                ($result:expr) => {
                    match $result {
                        Ok(value) => value,
                        Err(fault) => return refuse(hart, blocks, at, op, fault),
                    }
                };
            }
            /// End of the interpreter if a timed memory asks for it.
            macro_rules! stop_if_asked {
                () => {
                    if M::IS_TIMED && memory.stop() {
                        return stop_behind(hart, blocks, at, op, Exit::Stop);
                    }
                };
            }
            /// Load, with a function from the loaded bits to the register's contents.
            macro_rules! load {
                ($width:ident, $registers:ident, $convert:expr) => {{
                    let value = try_access!(memory.load(access!($width)));
                    hart.$registers[op.rd as usize] = $convert(value);
                    stop_if_asked!();
                }};
            }
            /// Store of a register.
            macro_rules! store {
                ($width:ident, $registers:ident) => {{
                    try_access!(memory.store(access!($width), hart.$registers[op.rs2 as usize]));
                    stop_if_asked!();
                }};
            }
            /// Atomic operation.
            macro_rules! atomic {
                ($width:ident, $operation:ident) => {{
                    let operation = AtomicOperation::$operation;
                    let old = try_access!(memory.atomic(access!($width), operation, x!(rs2)));
                    x!(rd) = Width::$width.sign_extend(old);
                    stop_if_asked!();
                }};
            }
            /// Load-reserved.
            macro_rules! load_reserved {
                ($width:ident) => {{
                    let (value, reservation) = try_access!(memory.load_reserved(access!($width)));
                    if let Some(former) = hart.reservation.replace(reservation) {
                        memory.release(former);
                    }
                    x!(rd) = Width::$width.sign_extend(value);
                    stop_if_asked!();
                }};
            }
            /// Store-conditional.
            macro_rules! store_conditional {
                ($width:ident) => {{
                    let (access, value) = (access!($width), x!(rs2));
                    let has_stored = try_access!(memory.store_conditional(access, hart.reservation, value));
                    hart.reservation = None;
                    x!(rd) = u64::from(!has_stored);
                    stop_if_asked!();
                }};
            }
            /// Branch to the exit point in the immediate.
            macro_rules! branch {
                ($condition:expr) => {
                    if $condition {
                        exit = op.immediate as u32;
                        done = u32::from(op.number) + 1;
                        break;
                    }
                };
            }
            /// Rounding mode of the instruction, or the interpreter's end.
            macro_rules! rounding {
                () => {
                    match Rounding::new(if op.rounding == 7 { hart.rounding } else { op.rounding }) {
                        Some(rounding) => rounding,
                        None => return illegal(hart, memory, blocks, at, op),
                    }
                };
            }
            /// Operation on two floating-point registers with rounding.
            macro_rules! float2 {
                ($function:ident, $format:ty) => {{
                    let rounding = rounding!();
                    f!(rd) = float::$function::<$format>(f!(rs1), f!(rs2), rounding, &mut hart.flags);
                }};
            }
            /// Fused multiply-add with the signs of its product and of its addend.
            macro_rules! fused {
                ($format:ty, $negates_product:literal, $negates_addend:literal) => {{
                    let rounding = rounding!();
                    let operands = (f!(rs1), f!(rs2), hart.f[Register::new(op.immediate as u32) as usize]);
                    f!(rd) = float::multiply_add::<$format>(
                        operands,
                        $negates_product,
                        $negates_addend,
                        rounding,
                        &mut hart.flags,
                    );
                }};
            }
            /// Sign injection: the sign of the second operand, changed by a function of both signs.
            macro_rules! inject {
                ($format:ty, $sign:expr) => {{
                    use float::Format;
                    let (a, b) = (<$format>::unbox(f!(rs1)), <$format>::unbox(f!(rs2)));
                    let sign: u64 = $sign(a, b) & <$format>::SIGN;
                    f!(rd) = <$format>::to_box(a & !<$format>::SIGN | sign);
                }};
            }
            /// Conversion to an integer.
            macro_rules! to_integer {
                ($format:ty, $width:ident, $is_signed:literal) => {{
                    let rounding = rounding!();
                    x!(rd) = float::to_integer::<$format>(
                        f!(rs1),
                        Width::$width,
                        $is_signed,
                        rounding,
                        &mut hart.flags,
                    );
                }};
            }
            /// Conversion from an integer.
            macro_rules! from_integer {
                ($format:ty, $width:ident, $is_signed:literal) => {{
                    let rounding = rounding!();
                    f!(rd) = float::from_integer::<$format>(
                        x!(rs1),
                        Width::$width,
                        $is_signed,
                        rounding,
                        &mut hart.flags,
                    );
                }};
            }
            /// Instruction of a control register.
            macro_rules! control {
                ($change:ident, $operand:expr, $is_read_only:expr) => {{
                    let operand: u64 = $operand;
                    let operand = if $is_read_only { None } else { Some(operand) };
                    let retired = hart.retired + (budget - left) + u64::from(op.number);
                    match hart.control(op.immediate as u32, Change::$change, operand, retired, memory) {
                        Some(old) => x!(rd) = old,
                        None => return illegal(hart, memory, blocks, at, op),
                    }
                }};
            }
            let immediate = op.immediate as u64;
            match op.operation {
                Operation::Constant | Operation::Lui | Operation::Auipc => x!(rd) = immediate,
                Operation::Addi => x!(rd) = x!(rs1).wrapping_add(immediate),
                Operation::Slti => x!(rd) = u64::from((x!(rs1) as i64) < op.immediate),
                Operation::Sltiu => x!(rd) = u64::from(x!(rs1) < immediate),
                Operation::Xori => x!(rd) = x!(rs1) ^ immediate,
                Operation::Ori => x!(rd) = x!(rs1) | immediate,
                Operation::Andi => x!(rd) = x!(rs1) & immediate,
                Operation::Slli => x!(rd) = x!(rs1) << (immediate & 63),
                Operation::Srli => x!(rd) = x!(rs1) >> (immediate & 63),
                Operation::Srai => x!(rd) = (x!(rs1) as i64 >> (immediate & 63)) as u64,
                Operation::Addiw => x!(rd) = word(x!(rs1).wrapping_add(immediate)),
                Operation::Slliw => x!(rd) = word(x!(rs1) << (immediate & 31)),
                Operation::Srliw => x!(rd) = word(u64::from(x!(rs1) as u32 >> (immediate & 31))),
                Operation::Sraiw => x!(rd) = (x!(rs1) as i32 >> (immediate & 31)) as i64 as u64,
                Operation::Add => x!(rd) = x!(rs1).wrapping_add(x!(rs2)),
                Operation::Sub => x!(rd) = x!(rs1).wrapping_sub(x!(rs2)),
                Operation::Sll => x!(rd) = x!(rs1) << (x!(rs2) & 63),
                Operation::Slt => x!(rd) = u64::from((x!(rs1) as i64) < x!(rs2) as i64),
                Operation::Sltu => x!(rd) = u64::from(x!(rs1) < x!(rs2)),
                Operation::Xor => x!(rd) = x!(rs1) ^ x!(rs2),
                Operation::Srl => x!(rd) = x!(rs1) >> (x!(rs2) & 63),
                Operation::Sra => x!(rd) = (x!(rs1) as i64 >> (x!(rs2) & 63)) as u64,
                Operation::Or => x!(rd) = x!(rs1) | x!(rs2),
                Operation::And => x!(rd) = x!(rs1) & x!(rs2),
                Operation::Addw => x!(rd) = word(x!(rs1).wrapping_add(x!(rs2))),
                Operation::Subw => x!(rd) = word(x!(rs1).wrapping_sub(x!(rs2))),
                Operation::Sllw => x!(rd) = word(x!(rs1) << (x!(rs2) & 31)),
                Operation::Srlw => x!(rd) = word(u64::from(x!(rs1) as u32 >> (x!(rs2) & 31))),
                Operation::Sraw => x!(rd) = (x!(rs1) as i32 >> (x!(rs2) & 31)) as i64 as u64,
                Operation::Mul => x!(rd) = x!(rs1).wrapping_mul(x!(rs2)),
                Operation::Mulh => {
                    x!(rd) = ((i128::from(x!(rs1) as i64) * i128::from(x!(rs2) as i64)) >> 64) as u64;
                }
                Operation::Mulhsu => {
                    x!(rd) = (i128::from(x!(rs1) as i64).wrapping_mul(i128::from(x!(rs2))) >> 64) as u64;
                }
                Operation::Mulhu => x!(rd) = ((u128::from(x!(rs1)) * u128::from(x!(rs2))) >> 64) as u64,
                Operation::Div => x!(rd) = divide(x!(rs1) as i64, x!(rs2) as i64) as u64,
                Operation::Divu => x!(rd) = x!(rs1).checked_div(x!(rs2)).unwrap_or(u64::MAX),
                Operation::Rem => x!(rd) = remainder(x!(rs1) as i64, x!(rs2) as i64) as u64,
                Operation::Remu => x!(rd) = x!(rs1).checked_rem(x!(rs2)).unwrap_or(x!(rs1)),
                Operation::Mulw => x!(rd) = word(x!(rs1).wrapping_mul(x!(rs2))),
                Operation::Divw => {
                    x!(rd) = word(divide((x!(rs1) as i32).into(), (x!(rs2) as i32).into()) as u64)
                }
                Operation::Divuw => {
                    x!(rd) = word((x!(rs1) as u32).checked_div(x!(rs2) as u32).unwrap_or(u32::MAX).into());
                }
                Operation::Remw => {
                    x!(rd) = word(remainder((x!(rs1) as i32).into(), (x!(rs2) as i32).into()) as u64);
                }
                Operation::Remuw => {
                    x!(rd) =
                        word((x!(rs1) as u32).checked_rem(x!(rs2) as u32).unwrap_or(x!(rs1) as u32).into());
                }
                Operation::Lb => load!(Byte, x, |value| Width::Byte.sign_extend(value)),
                Operation::Lh => load!(Half, x, |value| Width::Half.sign_extend(value)),
                Operation::Lw => load!(Word, x, |value| Width::Word.sign_extend(value)),
                Operation::Ld => load!(Double, x, |value| value),
                Operation::Lbu => load!(Byte, x, |value| value),
                Operation::Lhu => load!(Half, x, |value| value),
                Operation::Lwu => load!(Word, x, |value| value),
                Operation::Sb => store!(Byte, x),
                Operation::Sh => store!(Half, x),
                Operation::Sw => store!(Word, x),
                Operation::Sd => store!(Double, x),
                Operation::Beq => branch!(x!(rs1) == x!(rs2)),
                Operation::Bne => branch!(x!(rs1) != x!(rs2)),
                Operation::Blt => branch!((x!(rs1) as i64) < x!(rs2) as i64),
                Operation::Bge => branch!(x!(rs1) as i64 >= x!(rs2) as i64),
                Operation::Bltu => branch!(x!(rs1) < x!(rs2)),
                Operation::Bgeu => branch!(x!(rs1) >= x!(rs2)),
                // Translation has made constants and exit points of them.
                Operation::Jal => {}
                Operation::Jalr => {
                    hart.pc = x!(rs1).wrapping_add(immediate) & !1;
                    if op.rd != Register::Sink {
                        x!(rd) = blocks.address(&block, u32::from(op.number) + 1);
                    }
                }
                Operation::Fence => memory.fence(FenceKind::Memory, op.number.into()),
                Operation::FenceI => memory.fence(FenceKind::Instructions, op.number.into()),
                Operation::Ecall => return stop_behind(hart, blocks, at, op, Exit::EnvironmentCall),
                Operation::Ebreak => return stop_before(hart, blocks, at, op, Exit::Breakpoint),
                Operation::Illegal => return illegal(hart, memory, blocks, at, op),
                Operation::Csrrw => control!(Write, x!(rs1), false),
                Operation::Csrrs => control!(Set, x!(rs1), op.rs1 == Register::R0),
                Operation::Csrrc => control!(Clear, x!(rs1), op.rs1 == Register::R0),
                Operation::Csrrwi => control!(Write, op.rs1.number().into(), false),
                Operation::Csrrsi => control!(Set, op.rs1.number().into(), op.rs1 == Register::R0),
                Operation::Csrrci => control!(Clear, op.rs1.number().into(), op.rs1 == Register::R0),
                Operation::LrW => load_reserved!(Word),
                Operation::LrD => load_reserved!(Double),
                Operation::ScW => store_conditional!(Word),
                Operation::ScD => store_conditional!(Double),
                Operation::AmoswapW => atomic!(Word, Swap),
                Operation::AmoaddW => atomic!(Word, Add),
                Operation::AmoxorW => atomic!(Word, Xor),
                Operation::AmoandW => atomic!(Word, And),
                Operation::AmoorW => atomic!(Word, Or),
                Operation::AmominW => atomic!(Word, Min),
                Operation::AmomaxW => atomic!(Word, Max),
                Operation::AmominuW => atomic!(Word, MinUnsigned),
                Operation::AmomaxuW => atomic!(Word, MaxUnsigned),
                Operation::AmoswapD => atomic!(Double, Swap),
                Operation::AmoaddD => atomic!(Double, Add),
                Operation::AmoxorD => atomic!(Double, Xor),
                Operation::AmoandD => atomic!(Double, And),
                Operation::AmoorD => atomic!(Double, Or),
                Operation::AmominD => atomic!(Double, Min),
                Operation::AmomaxD => atomic!(Double, Max),
                Operation::AmominuD => atomic!(Double, MinUnsigned),
                Operation::AmomaxuD => atomic!(Double, MaxUnsigned),
                Operation::Flw => load!(Word, f, |value| value | 0xffff_ffff_0000_0000),
                Operation::Fld => load!(Double, f, |value| value),
                Operation::Fsw => store!(Word, f),
                Operation::Fsd => store!(Double, f),
                Operation::FmaddS => fused!(Single, false, false),
                Operation::FmsubS => fused!(Single, false, true),
                Operation::FnmsubS => fused!(Single, true, false),
                Operation::FnmaddS => fused!(Single, true, true),
                Operation::FmaddD => fused!(Double, false, false),
                Operation::FmsubD => fused!(Double, false, true),
                Operation::FnmsubD => fused!(Double, true, false),
                Operation::FnmaddD => fused!(Double, true, true),
                Operation::FaddS => float2!(add, Single),
                Operation::FsubS => float2!(subtract, Single),
                Operation::FmulS => float2!(multiply, Single),
                Operation::FdivS => float2!(divide, Single),
                Operation::FaddD => float2!(add, Double),
                Operation::FsubD => float2!(subtract, Double),
                Operation::FmulD => float2!(multiply, Double),
                Operation::FdivD => float2!(divide, Double),
                Operation::FsqrtS => {
                    let rounding = rounding!();
                    f!(rd) = float::square_root::<Single>(f!(rs1), rounding, &mut hart.flags);
                }
                Operation::FsqrtD => {
                    let rounding = rounding!();
                    f!(rd) = float::square_root::<Double>(f!(rs1), rounding, &mut hart.flags);
                }
                Operation::FsgnjS => inject!(Single, |_, b| b),
                Operation::FsgnjnS => inject!(Single, |_, b: u64| !b),
                Operation::FsgnjxS => inject!(Single, |a, b| a ^ b),
                Operation::FsgnjD => inject!(Double, |_, b| b),
                Operation::FsgnjnD => inject!(Double, |_, b: u64| !b),
                Operation::FsgnjxD => inject!(Double, |a, b| a ^ b),
                Operation::FminS => f!(rd) = float::minimum::<Single>(f!(rs1), f!(rs2), &mut hart.flags),
                Operation::FmaxS => f!(rd) = float::maximum::<Single>(f!(rs1), f!(rs2), &mut hart.flags),
                Operation::FminD => f!(rd) = float::minimum::<Double>(f!(rs1), f!(rs2), &mut hart.flags),
                Operation::FmaxD => f!(rd) = float::maximum::<Double>(f!(rs1), f!(rs2), &mut hart.flags),
                Operation::FeqS => x!(rd) = float::equal::<Single>(f!(rs1), f!(rs2), &mut hart.flags).into(),
                Operation::FltS => x!(rd) = float::less::<Single>(f!(rs1), f!(rs2), &mut hart.flags).into(),
                Operation::FleS => {
                    x!(rd) = float::less_or_equal::<Single>(f!(rs1), f!(rs2), &mut hart.flags).into()
                }
                Operation::FeqD => x!(rd) = float::equal::<Double>(f!(rs1), f!(rs2), &mut hart.flags).into(),
                Operation::FltD => x!(rd) = float::less::<Double>(f!(rs1), f!(rs2), &mut hart.flags).into(),
                Operation::FleD => {
                    x!(rd) = float::less_or_equal::<Double>(f!(rs1), f!(rs2), &mut hart.flags).into()
                }
                Operation::FclassS => x!(rd) = float::classify::<Single>(f!(rs1)),
                Operation::FclassD => x!(rd) = float::classify::<Double>(f!(rs1)),
                Operation::FcvtWS => to_integer!(Single, Word, true),
                Operation::FcvtWuS => to_integer!(Single, Word, false),
                Operation::FcvtLS => to_integer!(Single, Double, true),
                Operation::FcvtLuS => to_integer!(Single, Double, false),
                Operation::FcvtWD => to_integer!(Double, Word, true),
                Operation::FcvtWuD => to_integer!(Double, Word, false),
                Operation::FcvtLD => to_integer!(Double, Double, true),
                Operation::FcvtLuD => to_integer!(Double, Double, false),
                Operation::FcvtSW => from_integer!(Single, Word, true),
                Operation::FcvtSWu => from_integer!(Single, Word, false),
                Operation::FcvtSL => from_integer!(Single, Double, true),
                Operation::FcvtSLu => from_integer!(Single, Double, false),
                Operation::FcvtDW => from_integer!(Double, Word, true),
                Operation::FcvtDWu => from_integer!(Double, Word, false),
                Operation::FcvtDL => from_integer!(Double, Double, true),
                Operation::FcvtDLu => from_integer!(Double, Double, false),
                Operation::FcvtSD => {
                    let rounding = rounding!();
                    f!(rd) = float::narrow(f!(rs1), rounding, &mut hart.flags);
                }
                Operation::FcvtDS => {
                    let _ = rounding!();
                    f!(rd) = float::widen(f!(rs1), &mut hart.flags);
                }
                Operation::FmvXW => x!(rd) = word(f!(rs1)),
                Operation::FmvXD => x!(rd) = f!(rs1),
                Operation::FmvWX => f!(rd) = x!(rs1) | 0xffff_ffff_0000_0000,
                Operation::FmvDX => f!(rd) = x!(rs1),
            }
        }
        left -= u64::from(done);
        if exit != NO_EXIT {
            let point = blocks.exit(exit);
            hart.pc = point.target;
            index = point.block;
            if point.is_spin && left >= u64::from(done) {
                left -= count_iterations(memory, blocks, &block, done, left);
            }
        }
        if M::IS_TIMED && memory.stop() {
            return leave(hart, budget - left, Exit::Stop);
        }
        if exit == NO_EXIT || index == NO_BLOCK {
            let found = if left == 0 {
                Err(Exit::Budget)
            } else if exit == NO_EXIT {
                begin(hart, memory, blocks, left)
            } else {
                blocks.follow(exit, memory).map_err(|fault| Exit::Fault { pc: hart.pc, fault })
            };
            index = match found {
                Ok(index) => index,
                Err(exit) => return leave(hart, budget - left, exit),
            };
        }
    }
}

/// Counts further iterations of a loop that waits, of which the block's first `done` instructions have just been the latest
/// one: nothing can change memory until the hart is left, so each of them would do the same. Returns the number of their
/// instructions, of at most `left`.
#[cold]
#[inline(never)]
fn count_iterations<M: Memory>(memory: &mut M, blocks: &Blocks, block: &Block, done: u32, left: u64) -> u64 {
    let bytes = blocks.address(block, done).wrapping_sub(block.start) as u32;
    let iterations = left / u64::from(done);
    let is_stopped = M::IS_TIMED && memory.stop();
    let entry = Entry { address: block.start, bytes, instructions: done };
    if !is_stopped && memory.repeat(entry, iterations) { iterations * u64::from(done) } else { 0 }
}

/// Returns the block at the hart's address, or why it cannot be executed.
#[inline]
fn begin<M: Memory>(hart: &Hart, memory: &mut M, blocks: &mut Blocks, left: u64) -> Result<u32, Exit> {
    if left == 0 {
        return Err(Exit::Budget);
    }
    blocks.find(hart.pc, memory).map_err(|fault| Exit::Fault { pc: hart.pc, fault })
}

/// Counts retired instructions and returns the exit.
fn leave(hart: &mut Hart, retired: u64, exit: Exit) -> Exit {
    hart.retired += retired;
    exit
}

/// Leaves with the hart at an operation's instruction.
#[cold]
#[inline(never)]
fn stop_before(hart: &mut Hart, blocks: &Blocks, at: Position<'_>, op: &MicroOperation, exit: Exit) -> Exit {
    hart.pc = blocks.address(at.block, op.number.into());
    leave(hart, at.budget - at.left + u64::from(op.number), exit)
}

/// Leaves with the hart behind an operation's instruction.
#[cold]
#[inline(never)]
fn stop_behind(hart: &mut Hart, blocks: &Blocks, at: Position<'_>, op: &MicroOperation, exit: Exit) -> Exit {
    hart.pc = blocks.address(at.block, u32::from(op.number) + 1);
    leave(hart, at.budget - at.left + u64::from(op.number) + 1, exit)
}

/// Leaves at an instruction whose access was refused.
#[cold]
#[inline(never)]
fn refuse(hart: &mut Hart, blocks: &Blocks, at: Position<'_>, op: &MicroOperation, fault: Fault) -> Exit {
    let pc = blocks.address(at.block, op.number.into());
    stop_before(hart, blocks, at, op, Exit::Fault { pc, fault })
}

/// Leaves at an illegal instruction, whose bits are read again: operations do not have them.
#[cold]
#[inline(never)]
fn illegal<M: Memory>(
    hart: &mut Hart,
    memory: &mut M,
    blocks: &Blocks,
    at: Position<'_>,
    op: &MicroOperation,
) -> Exit {
    let pc = blocks.address(at.block, op.number.into());
    let exit = match crate::block::fetch(memory, pc) {
        Ok(bits) => Exit::IllegalInstruction { pc, bits },
        Err(fault) => Exit::Fault { pc, fault },
    };
    stop_before(hart, blocks, at, op, exit)
}

/// Extends 32 bits by their sign.
#[inline(always)]
fn word(value: u64) -> u64 {
    value as i32 as i64 as u64
}

/// Divides as DIV: by zero gives -1, and overflow the dividend (table 7.1).
#[inline(always)]
fn divide(dividend: i64, divisor: i64) -> i64 {
    if divisor == 0 { -1 } else { dividend.wrapping_div(divisor) }
}

/// Returns the remainder as REM: of zero it is the dividend, of overflow zero (table 7.1).
#[inline(always)]
fn remainder(dividend: i64, divisor: i64) -> i64 {
    if divisor == 0 { dividend } else { dividend.wrapping_rem(divisor) }
}
