//! Executables: hostile files give errors, and a sound one is loaded as its headers say.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_cpu::elf::{Arguments, ElfError, Image};
use bywash_cpu::memory::{Permissions, Space};
use bywash_cpu::{Blocks, Exit, Register};
use proptest::prelude::*;

/// Returns a small executable: headers, code that loads a word from a data segment and calls the system, a
/// table of symbols.
fn executable() -> Vec<u8> {
    let mut file = vec![0; 0x400];
    let mut put = |offset: usize, bytes: &[u8]| file[offset..offset + bytes.len()].copy_from_slice(bytes);
    let word = |value: u64| value.to_le_bytes();
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[2, 0, 243, 0, 1]);
    put(24, &word(0x1_0200)); // entry
    put(32, &word(64)); // program headers
    put(40, &word(0x300)); // section headers
    put(52, &[64, 0, 56, 0, 2, 0, 64, 0, 3, 0, 2, 0]);
    // Code: offset 0, address 0x10000, 0x210 bytes, readable and executable.
    put(64, &[1, 0, 0, 0, 5]);
    for (offset, value) in [(72, 0), (80, 0x1_0000), (96, 0x210), (104, 0x210), (112, 0x1000)] {
        put(offset, &word(value));
    }
    // Data: offset 0x210, address 0x11210, 8 bytes in the file and 0x2000 in memory, readable and writable.
    put(120, &[1, 0, 0, 0, 6]);
    for (offset, value) in [(128, 0x210), (136, 0x1_1210), (152, 8), (160, 0x2000), (168, 0x1000)] {
        put(offset, &word(value));
    }
    // lui a0, 0x11; lw a0, 0x210(a0); ecall
    for (number, bits) in [0x0001_1537_u32, 0x2105_2503, 0x0000_0073].into_iter().enumerate() {
        put(0x200 + 4 * number, &bits.to_le_bytes());
    }
    put(0x210, &word(77));
    // Symbols: none, and `start`, a function of 12 bytes.
    put(0x220 + 24, &[1, 0, 0, 0, 2, 0, 1]);
    put(0x220 + 32, &word(0x1_0200));
    put(0x220 + 40, &word(12));
    put(0x260, b"\0start\0");
    // Section headers: none, the table of symbols with its names in section 2, the names.
    put(0x340 + 4, &[2]);
    put(0x340 + 24, &word(0x220));
    put(0x340 + 32, &word(48));
    put(0x340 + 40, &[2]);
    put(0x380 + 4, &[3]);
    put(0x380 + 24, &word(0x260));
    put(0x380 + 32, &word(7));
    file.resize(0x3c0, 0);
    file
}

#[test]
fn a_sound_file_is_loaded_and_runs() {
    let file = executable();
    let image = Image::parse(&file).unwrap();
    let mut space = Space::new(1 << 20);
    let loaded = image.load(&mut space, 0).unwrap();
    assert_eq!(
        (loaded.entry, loaded.headers, loaded.header_count, loaded.end),
        (0x1_0200, 0x1_0040, 2, 0x1_4000)
    );
    assert_eq!(space.permissions(0x1_0000), Some(Permissions::READ | Permissions::EXECUTE));
    assert_eq!(space.permissions(0x1_3fff), Some(Permissions::READ | Permissions::WRITE));
    let symbols = image.symbols(&loaded).unwrap();
    assert_eq!(symbols.symbol_of(0x1_020b).map(|symbol| symbol.name.as_str()), Some("start"));
    assert_eq!(symbols.symbol_of(0x1_020c), None);
    assert_eq!(symbols.symbol_of(0x1_01ff), None);
    let mut hart = Arguments::new(&["program"]).start(&loaded, &mut space, 0x100_0000, 0x1_0000).unwrap();
    assert_eq!(hart.run(&mut space, &mut Blocks::new(), 10), Exit::EnvironmentCall);
    assert_eq!(hart.x(Register::R10), 77);
}

#[test]
fn the_stack_has_arguments_environment_and_auxiliary_vector() {
    let file = executable();
    let mut space = Space::new(1 << 20);
    let loaded = Image::parse(&file).unwrap().load(&mut space, 0).unwrap();
    let mut arguments = Arguments::new(&["program", "one", ""]);
    arguments.environment = vec![b"HOME=/".to_vec()];
    arguments.random = *b"0123456789abcdef";
    arguments.user = 1000;
    let hart = arguments.start(&loaded, &mut space, 0x100_0000, 0x1_0000).unwrap();
    let sp = hart.x(Register::R2);
    assert_eq!(sp % 16, 0);
    let mut word = |address: u64| {
        let mut bytes = [0; 8];
        space.read(address, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let words: Vec<u64> = (0..42).map(|number| word(sp + 8 * number)).collect();
    assert_eq!(words[0], 3);
    assert_eq!((words[4], words[6]), (0, 0));
    let mut text = |address: u64, length: usize| {
        let mut bytes = vec![0; length];
        space.read(address, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(text(words[1], 8), b"program\0");
    assert_eq!(text(words[2], 4), b"one\0");
    assert_eq!(text(words[3], 1), b"\0");
    assert_eq!(text(words[5], 7), b"HOME=/\0");
    let auxiliary = |kind: u64| {
        let vector = words[7..].chunks_exact(2).take_while(|pair| pair[0] != 0);
        vector.into_iter().find(|pair| pair[0] == kind).map(|pair| pair[1])
    };
    for (kind, value) in
        [(3, 0x1_0040), (4, 56), (5, 2), (6, 4096), (9, 0x1_0200), (11, 1000), (16, 0x112d), (23, 0)]
    {
        assert_eq!(auxiliary(kind), Some(value), "type {kind}");
    }
    assert_eq!(text(auxiliary(25).unwrap(), 16), b"0123456789abcdef");
    assert_eq!(text(auxiliary(31).unwrap(), 8), b"program\0");
}

#[test]
fn errors_name_what_is_wrong() {
    let changed = |offset: usize, bytes: &[u8]| {
        let mut file = executable();
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
        Image::parse(&file).map(|_| ()).unwrap_err().to_string()
    };
    for (offset, bytes, expected) in [
        (0, &b"#!/b"[..], "the file is no ELF file"),
        (4, &[1], "the class (EI_CLASS) is 1, and must be 2"),
        (5, &[2], "the byte order (EI_DATA) is 2"),
        (18, &[62, 0], "the machine (e_machine) is 62, and must be 243 (RISC-V)"),
        (16, &[1], "the type (e_type) is 1"),
        (54, &[32], "the length of a program header (e_phentsize) is 32"),
        (56, &[0xff, 0xff], "the number of program headers (e_phnum) is 65535"),
        (32, &[0xff; 8], "the table of program headers would be at"),
        (96, &[0, 0, 1], "segment 0 has more bytes in the file than in memory"),
        (72, &[1], "segment 0 has other offsets within a page"),
        (87, &[0x7f], "segment 0 ends above the addresses of user programs"),
        (136, &[0x10, 0xf2, 0x00], "segment 1 of those to load begins before the end of the one before it"),
        (24, &[0; 8], "the entry 0x0 is in no executable segment"),
        (120, &[3], "the program needs the dynamic linker"),
    ] {
        let message = changed(offset, bytes);
        assert!(message.contains(expected), "{message}");
    }
    assert!(matches!(Image::parse(&executable()[..200]), Err(ElfError::CutShort { .. })));
    let file = executable();
    let loaded = Image::parse(&file).unwrap().load(&mut Space::new(1 << 20), 0).unwrap();
    let start = |arguments: &Arguments| {
        arguments.start(&loaded, &mut Space::new(1 << 20), 0x100_0000, 0x1_0000).map(|_| ()).unwrap_err()
    };
    assert!(matches!(start(&Arguments::new(&["x".repeat(1 << 16)])), ElfError::Arguments { .. }));
    assert!(matches!(start(&Arguments::new(&["a\0b"])), ElfError::ZeroByte(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_files_are_loaded_or_refused(
        changes in prop::collection::vec((0..0x3c0_usize, prop_oneof![any::<u8>(), Just(0xff), Just(0)]), 1..12),
        runs in prop::collection::vec((0..0x38_usize, any::<u64>()), 0..3),
        length in prop_oneof![Just(0x3c0_usize), 0..0x3c0_usize],
    ) {
        let mut file = executable();
        for (offset, byte) in changes {
            file[offset] = byte;
        }
        for (word, value) in runs {
            file[8 * word + 64..8 * word + 72].copy_from_slice(&value.to_le_bytes());
        }
        file.truncate(length);
        if let Ok(image) = Image::parse(&file) {
            let mut space = Space::new(1 << 20);
            if let Ok(loaded) = image.load(&mut space, 0x10_0000_0000) {
                let _ = image.symbols(&loaded).map(|symbols| symbols.symbol_of(loaded.entry).cloned());
                if let Ok(mut hart) = Arguments::new(&["a"]).start(&loaded, &mut space, 0x3f_0000_0000, 0x1_0000) {
                    let _ = hart.run(&mut space, &mut Blocks::new(), 100);
                }
            }
        }
    }
}
