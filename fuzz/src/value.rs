//! Numbers that are likely to find errors. One byte of the input mostly decides, so that inputs are short.

use crate::picture::ARENA;
use arbitrary::{Arbitrary, Result, Unstructured};

/// Number that is mostly small or at a limit, and otherwise any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Value(u64);

const EDGES: [u64; 12] = [
    ARENA as u64,
    ARENA as u64 - 1,
    ARENA as u64 + 1,
    ARENA as u64 / 64,
    ARENA as u64 / 64 - 1,
    121,
    4096,
    u16::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 63,
    u64::MAX,
];

impl<'a> Arbitrary<'a> for Value {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Value> {
        Ok(Value(match input.arbitrary::<u8>()? {
            small @ 0..128 => u64::from(small),
            edge @ 128..224 => EDGES[usize::from(edge) % EDGES.len()],
            _ => input.arbitrary()?,
        }))
    }
}

impl Value {
    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the low 32 bits of the number.
    pub fn half(self) -> u64 {
        self.0 & 0xffff_ffff
    }
}

/// Index of an object of a kind of which there are few.
#[derive(Clone, Copy, Debug)]
pub enum Few {
    /// Index of an existing object, or of the first one beyond them.
    Near(u8),
    /// Any index.
    Any(u16),
}

impl<'a> Arbitrary<'a> for Few {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Few> {
        Ok(match input.arbitrary()? {
            near @ 0..240 => Few::Near(near),
            _ => Few::Any(input.arbitrary()?),
        })
    }
}

impl Few {
    /// Returns the index, where `count` objects exist.
    pub fn of(self, count: usize) -> u64 {
        match self {
            Few::Near(number) => u64::from(number) % (count as u64 + 1),
            Few::Any(number) => u64::from(number),
        }
    }
}

/// Number of bytes of a request for memory.
#[derive(Clone, Copy, Debug)]
pub struct Size(usize);

impl<'a> Arbitrary<'a> for Size {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Size> {
        Ok(Size(match input.arbitrary::<u8>()? {
            // Sizes of which many fit into an arena.
            small @ 0..150 => 121 + usize::from(small) * 37,
            // Sizes that are sent within an entry of a ring.
            tiny @ 150..240 => usize::from(240 - tiny) * 120 / 90,
            _ => usize::from(input.arbitrary::<u16>()?),
        }))
    }
}

impl Size {
    /// Returns the number of bytes.
    pub fn get(self) -> usize {
        self.0
    }
}
