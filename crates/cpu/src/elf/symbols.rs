//! Symbols: names of a program's functions, by which profiles tell where its time goes.

use super::ElfError;
use super::field::{name, number, part};

/// Function of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Address of the first instruction.
    pub address: u64,
    /// Length in bytes; 0 if the file does not tell it.
    pub length: u64,
    /// Name as the linker has it.
    pub name: String,
}

/// Functions of a program by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Functions in the order of their addresses, one for each address.
    by_address: Vec<Symbol>,
}

/// Length of a section header, in bytes.
const SECTION_HEADER_BYTES: u64 = 64;
/// Length of a symbol in the file, in bytes.
const SYMBOL_BYTES: u64 = 24;
/// Type of a section with a table of symbols (SHT_SYMTAB).
const SYMBOL_TABLE: u64 = 2;
/// Type of a symbol that is a function (STT_FUNC).
const FUNCTION: u64 = 2;

impl Symbols {
    /// Returns the function that contains an address. A function without a length reaches to the next one.
    pub fn symbol_of(&self, pc: u64) -> Option<&Symbol> {
        let behind = self.by_address.partition_point(|symbol| symbol.address <= pc);
        let symbol = self.by_address.get(behind.checked_sub(1)?)?;
        (symbol.length == 0 || pc - symbol.address < symbol.length).then_some(symbol)
    }

    /// Returns the functions in the order of their addresses.
    pub fn all(&self) -> &[Symbol] {
        &self.by_address
    }

    /// Reads the functions of a file that is loaded at a base.
    pub(super) fn read(file: &[u8], base: u64) -> Result<Symbols, ElfError> {
        let header = part(file, 0, 64, "the ELF header")?;
        let (offset, entry, count) = (number(header, 40, 8), number(header, 58, 2), number(header, 60, 2));
        if offset == 0 || count == 0 {
            return Ok(Symbols::default());
        }
        if entry != SECTION_HEADER_BYTES {
            return Err(ElfError::Unsuitable {
                field: "the length of a section header (e_shentsize)",
                found: entry,
                wanted: "64",
            });
        }
        let sections = part(file, offset, count * SECTION_HEADER_BYTES, "the table of section headers")?;
        let section = |index: u64| sections.chunks_exact(SECTION_HEADER_BYTES as usize).nth(index as usize);
        let contents =
            |section: &[u8], title| part(file, number(section, 24, 8), number(section, 32, 8), title);
        let table = (0..count).filter_map(section).find(|section| number(section, 4, 4) == SYMBOL_TABLE);
        let Some(table) = table else { return Ok(Symbols::default()) };
        let names = match section(number(table, 40, 4)) {
            Some(names) => contents(names, "the names of the symbols")?,
            None => return Ok(Symbols::default()),
        };
        let symbols = contents(table, "the table of symbols")?.chunks_exact(SYMBOL_BYTES as usize);
        let mut by_address: Vec<Symbol> =
            symbols.filter_map(|symbol| function(symbol, names, base)).collect();
        by_address.sort_by(|a, b| {
            a.address.cmp(&b.address).then(b.length.cmp(&a.length)).then(a.name.cmp(&b.name))
        });
        by_address.dedup_by_key(|symbol| symbol.address);
        Ok(Symbols { by_address })
    }
}

/// Returns the function of a symbol; `None` if it is something else.
fn function(symbol: &[u8], names: &[u8], base: u64) -> Option<Symbol> {
    let is_defined = number(symbol, 6, 2) != 0;
    if number(symbol, 4, 1) & 15 != FUNCTION || !is_defined {
        return None;
    }
    let name = name(names, number(symbol, 0, 4))?;
    Some(Symbol { address: number(symbol, 8, 8).wrapping_add(base), length: number(symbol, 16, 8), name })
}
