//! The disassembler: an instruction as the text from which the GNU assembler makes it.

use super::{Format, Instruction, decode};

/// Returns the assembly text of the instruction at an address; compressed instructions are written as what
/// they stand for, and bits that are no instruction as a number.
///
/// ```
/// assert_eq!(bywash_cpu::disassemble(0x1_0000, 0x00b5_0463), "beq a0, a1, 0x10008");
/// ```
pub fn disassemble(address: u64, bits: u32) -> String {
    let instruction = decode(bits);
    match instruction.operation.row() {
        Some(row) => {
            let operands = operands(row.format, &instruction, address);
            if operands.is_empty() {
                row.mnemonic.to_string()
            } else {
                format!("{} {operands}", row.mnemonic)
            }
        }
        None => format!(".insn {:#x}", instruction.bits),
    }
}

/// Returns the text of the operands.
fn operands(format: Format, instruction: &Instruction, address: u64) -> String {
    let Instruction { rd, rs1, rs2, rs3, immediate, bits, .. } = *instruction;
    let (xd, x1, x2) = (rd.integer_name(), rs1.integer_name(), rs2.integer_name());
    let (fd, f1, f2, f3) = (rd.float_name(), rs1.float_name(), rs2.float_name(), rs3.float_name());
    let target = address.wrapping_add(immediate as u64);
    let rounding = ROUNDINGS[instruction.rounding as usize & 7];
    match format {
        Format::R => format!("{xd}, {x1}, {x2}"),
        Format::I | Format::Shift | Format::ShiftWord => format!("{xd}, {x1}, {immediate}"),
        Format::Load | Format::Jalr => format!("{xd}, {immediate}({x1})"),
        Format::Store => format!("{x2}, {immediate}({x1})"),
        Format::FloatLoad => format!("{fd}, {immediate}({x1})"),
        Format::FloatStore => format!("{f2}, {immediate}({x1})"),
        Format::B => format!("{x1}, {x2}, {target:#x}"),
        Format::U => format!("{xd}, {:#x}", immediate as u64 >> 12 & 0xf_ffff),
        Format::J => format!("{xd}, {target:#x}"),
        Format::Csr => format!("{xd}, {immediate:#x}, {x1}"),
        Format::CsrImmediate => format!("{xd}, {immediate:#x}, {}", rs1.number()),
        Format::Atomic => format!("{xd}, {x2}, ({x1})"),
        Format::LoadReserved => format!("{xd}, ({x1})"),
        Format::Fused => format!("{fd}, {f1}, {f2}, {f3}, {rounding}"),
        Format::FloatRounded => format!("{fd}, {f1}, {f2}, {rounding}"),
        Format::FloatFromFloat => format!("{fd}, {f1}, {rounding}"),
        Format::Float => format!("{fd}, {f1}, {f2}"),
        Format::Compare => format!("{xd}, {f1}, {f2}"),
        Format::IntegerFromFloat => format!("{xd}, {f1}, {rounding}"),
        Format::FloatFromInteger => format!("{fd}, {x1}, {rounding}"),
        Format::MoveToInteger => format!("{xd}, {f1}"),
        Format::MoveToFloat => format!("{fd}, {x1}"),
        Format::Fence => format!("{}, {}", fence_set(bits >> 24), fence_set(bits >> 20)),
        _ => String::new(),
    }
}

/// Returns the text of the kinds of access that a fence orders.
fn fence_set(bits: u32) -> String {
    let set: String = ['i', 'o', 'r', 'w']
        .into_iter()
        .enumerate()
        .filter(|&(i, _)| bits & 8 >> i != 0)
        .map(|f| f.1)
        .collect();
    if set.is_empty() { "0".to_string() } else { set }
}

/// Names of the rounding modes.
const ROUNDINGS: [&str; 8] = ["rne", "rtz", "rdn", "rup", "rmm", "reserved", "reserved", "dyn"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_written_for_the_assembler() {
        for (bits, text) in [
            (0xff01_0113, "addi sp, sp, -16"),
            (0x0011_3423, "sd ra, 8(sp)"),
            (0x0000_8067, "jalr zero, 0(ra)"),
            (0x8082, "jalr zero, 0(ra)"),
            (0x0000_15b7, "lui a1, 0x1"),
            (0x0ff0_000f, "fence iorw, iorw"),
            (0x0000_0073, "ecall"),
            (0x1205_2527, "fsw ft0, 298(a0)"),
            (0x02b5_7553, "fadd.d fa0, fa0, fa1, dyn"),
            (0x0010_2573, "csrrs a0, 0x1, zero"),
            (0x1005_252f, "lr.w a0, (a0)"),
            (0xffff_ffff, ".insn 0xffffffff"),
        ] {
            assert_eq!(disassemble(0x1000, bits), text, "{bits:#010x}");
        }
    }
}
