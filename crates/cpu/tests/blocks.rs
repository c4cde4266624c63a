//! Blocks against the plain interpreter: random instructions, run in slices of random length, leave the same
//! registers, memory and reason to stop.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_cpu::decode::{COMPRESSED, Format, Operation, TABLE};
use bywash_cpu::memory::{Permissions, Space};
use bywash_cpu::{Blocks, Exit, Hart, Register};
use proptest::prelude::*;

const CODE: u64 = 0x1_0000;
const CODE_BYTES: u64 = 0x1000;
const DATA: u64 = 0x2_0000;
const DATA_BYTES: u64 = 0x4000;
/// Greatest number of instructions of a run; random branches may never end.
const BUDGET: u64 = 2000;

/// Returns a random instruction of the table. Some operands are changed so that the program gets further:
/// jumps are short, and memory is addressed by s0, which points to data.
fn instruction((row, random): (usize, u32)) -> Vec<u8> {
    if row >= TABLE.len() {
        let row = &COMPRESSED[row - TABLE.len()];
        let mut bits = row.value | random & !row.mask & 0xffff;
        if row.format == Format::CJump || row.format == Format::CBranch {
            // Forward by at most 12 bytes.
            bits =
                row.value | random & 0x0018 | if row.format == Format::CBranch { random & 0x0380 } else { 0 };
        }
        return (bits as u16).to_le_bytes().to_vec();
    }
    let row = &TABLE[row];
    let mut bits = row.value | random & !row.mask;
    match row.format {
        Format::Load | Format::FloatLoad => bits = with_base(bits),
        Format::Store | Format::FloatStore => bits = with_base(bits),
        Format::Atomic | Format::LoadReserved => bits = with_base(bits),
        Format::B => bits = bits & 0x01ff_f0ff | (random & 0x0f00) & 0x0e00 | 0x0400,
        Format::J => bits = row.value | random & 0x0000_0f80 | 0x0080_0000,
        Format::Csr | Format::CsrImmediate => {
            bits = bits & 0x000f_ffff | [1, 2, 3, 0xc02][random as usize >> 30] << 20
        }
        _ => {}
    }
    if row.operation == Operation::Jalr {
        bits = row.value | random & 0x0000_0f80 | 9 << 15 | (random >> 20 & 0x3c) << 20;
    }
    bits.to_le_bytes().to_vec()
}

/// Returns an instruction whose rs1 is s0.
fn with_base(bits: u32) -> u32 {
    bits & !(31 << 15) | 8 << 15
}

/// State after a run, for comparison.
fn run(code: &[u8], seeds: &[u64], blocks: &mut Blocks, slices: &[u64]) -> (Hart, Exit, Vec<u8>) {
    let mut space = Space::new(1 << 20);
    space.map(CODE, CODE_BYTES, Permissions::READ | Permissions::EXECUTE).unwrap();
    space.map(DATA, DATA_BYTES, Permissions::READ | Permissions::WRITE).unwrap();
    space.initialise(CODE, code).unwrap();
    let mut hart = Hart::new(CODE);
    for (number, &seed) in (1..).zip(seeds) {
        hart.set_x(Register::new(number), seed);
        hart.set_f(
            Register::new(number),
            seed.rotate_left(17) | if seed & 1 == 0 { 0xffff_ffff << 32 } else { 0 },
        );
    }
    hart.set_x(Register::R8, DATA + DATA_BYTES / 2);
    hart.set_x(Register::R9, CODE + 64);
    hart.set_x(Register::R2, DATA + 64);
    let mut slices = slices.iter().cycle();
    let exit = loop {
        let left = BUDGET - hart.retired;
        if left == 0 {
            break Exit::Budget;
        }
        let slice = (*slices.next().unwrap()).min(left);
        match hart.run(&mut space, blocks, slice) {
            Exit::Budget | Exit::EnvironmentCall => {}
            Exit::Breakpoint => {
                hart.pc += 2;
            }
            exit => break exit,
        }
    };
    let mut data = vec![0; DATA_BYTES as usize];
    space.read(DATA, &mut data).unwrap();
    (hart, exit, data)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn blocks_do_as_the_plain_interpreter(
        code in prop::collection::vec((0..TABLE.len() + COMPRESSED.len(), any::<u32>()).prop_map(instruction), 1..150),
        seeds in prop::collection::vec(prop_oneof![any::<u64>(), 0..16_u64, Just(u64::MAX), Just(DATA)], 31),
        slices in prop::collection::vec(prop_oneof![1..80_u64, Just(BUDGET)], 1..8),
    ) {
        let code = code.concat();
        let expected = run(&code, &seeds, &mut Blocks::plain(), &[BUDGET]);
        let found = run(&code, &seeds, &mut Blocks::new(), &slices);
        prop_assert_eq!(&found.0, &expected.0);
        prop_assert_eq!(found.1, expected.1);
        prop_assert_eq!(found.2, expected.2);
    }
}

/// Encodes `addi rd, rs1, immediate`.
fn addi(rd: u32, rs1: u32, immediate: i32) -> u32 {
    0x13 | rd << 7 | rs1 << 15 | (immediate as u32) << 20
}

/// Makes a space with a page of code that may be written, too.
fn writable_code(code: &[u32]) -> Space {
    let mut space = Space::new(1 << 20);
    space.map(CODE, CODE_BYTES, Permissions::READ | Permissions::WRITE | Permissions::EXECUTE).unwrap();
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    space.initialise(CODE, &bytes).unwrap();
    space
}

#[test]
fn code_that_a_program_changes_is_decoded_again() {
    // sw a1, 12(a0); fence.i; addi a2, a2, 1; then the instruction that is replaced: addi a3, zero, 1 by addi
    // a3, zero, 2.
    let mut space = writable_code(&[0x00b5_2623, 0x0000_100f, addi(12, 12, 1), addi(13, 0, 1), 0x0000_0073]);
    let mut blocks = Blocks::new();
    for (stored, expected) in [(addi(13, 0, 1), 1), (addi(13, 0, 2), 2), (addi(13, 0, 3), 3)] {
        let mut hart = Hart::new(CODE);
        hart.set_x(Register::R10, CODE);
        hart.set_x(Register::R11, stored.into());
        assert_eq!(hart.run(&mut space, &mut blocks, 100), Exit::EnvironmentCall);
        assert_eq!((hart.x(Register::R13), hart.x(Register::R12)), (expected, 1));
    }
}

#[test]
fn code_that_the_system_changes_is_decoded_again() {
    let mut space = writable_code(&[addi(10, 0, 1), 0x0000_0073]);
    let mut blocks = Blocks::new();
    let mut result = |space: &mut Space| {
        let mut hart = Hart::new(CODE);
        let exit = hart.run(space, &mut blocks, 100);
        (exit, hart.x(Register::R10))
    };
    assert_eq!(result(&mut space), (Exit::EnvironmentCall, 1));
    space.write(CODE, &addi(10, 0, 2).to_le_bytes()).unwrap();
    assert_eq!(result(&mut space), (Exit::EnvironmentCall, 2));
    space.protect(CODE, CODE_BYTES, Permissions::READ).unwrap();
    assert!(matches!(result(&mut space), (Exit::Fault { pc: CODE, .. }, 0)));
    space.protect(CODE, CODE_BYTES, Permissions::READ | Permissions::EXECUTE).unwrap();
    assert_eq!(result(&mut space), (Exit::EnvironmentCall, 2));
    space.unmap(CODE, CODE_BYTES).unwrap();
    assert!(matches!(result(&mut space), (Exit::Fault { pc: CODE, .. }, 0)));
    space.map(CODE, CODE_BYTES, Permissions::EXECUTE).unwrap();
    assert!(matches!(result(&mut space), (Exit::IllegalInstruction { pc: CODE, bits: 0 }, 0)));
}

#[test]
fn two_harts_share_blocks_and_memory() {
    // Adds one to the word at a0 by load-reserved and store-conditional, a1 times.
    let code = [
        0x1005_262f, // lr.w a2, (a0)
        addi(12, 12, 1),
        0x18c5_26af, // sc.w a3, a2, (a0)
        0xfe06_9ae3, // bne a3, zero, -12
        addi(11, 11, -1),
        0xfe05_96e3, // bne a1, zero, -20
        0x0000_0073,
    ];
    for slice in 1..12 {
        let mut space = writable_code(&code);
        space.map(DATA, DATA_BYTES, Permissions::READ | Permissions::WRITE).unwrap();
        let mut blocks = Blocks::new();
        let mut harts: Vec<Hart> = (0..2).map(|_| Hart::new(CODE)).collect();
        for hart in &mut harts {
            hart.set_x(Register::R10, DATA + 4);
            hart.set_x(Register::R11, 50);
        }
        let mut is_done = [false; 2];
        for turn in 0..20_000 {
            // Slices differ in length, so that no rhythm lets both harts fail for ever.
            let hart = turn % 2;
            let length = slice + (turn as u64 / 2) % 3;
            if !is_done[hart] {
                is_done[hart] = harts[hart].run(&mut space, &mut blocks, length) == Exit::EnvironmentCall;
            }
        }
        let mut word = [0; 4];
        space.read(DATA + 4, &mut word).unwrap();
        assert_eq!((is_done, u32::from_le_bytes(word)), ([true; 2], 100), "slices of {slice}");
    }
}

/// Returns a branch backward by so many bytes.
fn branch_back(bytes: usize, condition: u32, rs1: u32, rs2: u32) -> [u8; 4] {
    let offset = (bytes as u32).wrapping_neg();
    let bits = 0x63
        | (offset >> 11 & 1) << 7
        | (offset >> 1 & 0xf) << 8
        | condition << 12
        | rs1 << 15
        | rs2 << 20
        | (offset >> 5 & 0x3f) << 25
        | (offset >> 12 & 1) << 31;
    bits.to_le_bytes()
}

/// Returns the code of a loop: instructions without jumps, and a branch back to the first, a call behind it.
fn loop_of(rows: &[(usize, u32)], condition: u32, (rs1, rs2): (u32, u32)) -> Vec<u8> {
    let is_straight = |&&(row, _): &&(usize, u32)| {
        row < TABLE.len()
            && !matches!(TABLE[row].format, Format::B | Format::J)
            && !matches!(TABLE[row].operation, Operation::Jalr | Operation::Ecall | Operation::Ebreak)
    };
    let mut code: Vec<u8> = rows.iter().filter(is_straight).flat_map(|&row| instruction(row)).collect();
    let bytes = code.len();
    code.extend(branch_back(bytes, condition, rs1, rs2));
    code.extend(0x73_u32.to_le_bytes());
    code
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Loops of all kinds, many of which wait: a cache that counts iterations does as one that executes each.
    #[test]
    fn iterations_that_are_counted_are_those_that_are_executed(
        rows in prop::collection::vec((0..TABLE.len(), any::<u32>()), 0..5),
        condition in prop::sample::select(vec![0_u32, 1, 4, 5, 6, 7]),
        operands in (0..16_u32, 0..16_u32),
        seeds in prop::collection::vec(prop_oneof![any::<u64>(), 0..4_u64], 31),
        slices in prop::collection::vec(1..400_u64, 1..6),
    ) {
        let code = loop_of(&rows, condition, operands);
        let counted = run(&code, &seeds, &mut Blocks::new(), &slices);
        let executed = run(&code, &seeds, &mut Blocks::plain(), &slices);
        prop_assert_eq!(counted, executed);
    }
}

#[test]
fn a_loop_that_waits_is_counted_and_one_that_computes_is_not() {
    // Iterations that are executed are told to the memory one by one.
    let tell = |instructions: &[u32]| {
        let mut space = Space::new(1 << 20);
        space.map(CODE, CODE_BYTES, Permissions::READ | Permissions::EXECUTE).unwrap();
        space.map(DATA, DATA_BYTES, Permissions::READ | Permissions::WRITE).unwrap();
        let mut code: Vec<u8> = instructions.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        code.extend(branch_back(code.len(), 0, 0, 0));
        space.initialise(CODE, &code).unwrap();
        let mut hart = Hart::new(CODE);
        hart.set_x(Register::R8, DATA);
        // A long run ends at once if iterations are counted; executing them would take hours.
        let budget = if is_waiting(instructions) { 1 << 50 } else { 100_000 };
        assert_eq!(hart.run(&mut space, &mut Blocks::new(), budget), Exit::Budget);
        assert_eq!(hart.retired, budget);
        hart.x(Register::R15)
    };
    let (load, add, fence, store) = (0x0004_3783, 0x0017_8793, 0x0330_000f, 0x00f4_3023);
    for waits in [&[][..], &[load], &[load, add], &[load, fence], &[fence, load, add]] {
        assert!(tell(waits) <= 1);
    }
    assert_eq!(tell(&[add]), 50_000);
    assert_eq!(tell(&[load, add, store]), 25_000);
}

/// Returns true for instructions of the test that do not change what they use: no store, and a load before an addition.
fn is_waiting(instructions: &[u32]) -> bool {
    instructions.iter().all(|bits| bits & 0x7f != 0x23)
        && (instructions.is_empty() || instructions.iter().any(|bits| bits & 0x7f == 0x03))
}
