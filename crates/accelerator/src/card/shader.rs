//! Kernel of the user on a card: one pass over the units of a block.

use super::session::{Kernel, Layout};
use super::{Access, Binding, Card, Pass, Source};
use crate::error::Error;

/// Kernel of the user as its text describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shader {
    pub(crate) text: String,
    /// Size of a unit of the input, and of its output, in bytes: multiples of 4.
    pub(crate) input_bytes: usize,
    pub(crate) output_bytes: usize,
    /// Invocations that run together.
    pub(crate) group: u32,
}

impl Shader {
    /// Returns the sizes of the kernel's blocks: their units are the invocations, in one dimension.
    pub(crate) fn layout<C: Card>(&self, card: &C) -> Layout {
        Layout {
            sample_bytes: self.input_bytes,
            unit_bytes: self.input_bytes,
            output_bytes: self.output_bytes,
            units_max: card.limits().groups as usize * self.group as usize,
            is_padded: false,
        }
    }
}

/// Compiled kernel.
pub(crate) struct ShaderKernel<C: Card> {
    program: C::Program,
    /// Number of units of the block, and of those before it.
    block: C::Buffer,
    input_bytes: usize,
    output_bytes: usize,
    units: u64,
}

impl<C: Card> ShaderKernel<C> {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// Those of the card.
    pub(crate) fn new(card: &C, shader: &Shader) -> Result<ShaderKernel<C>, Error> {
        let program = card.program(&Pass {
            source: Source::Text(&shader.text),
            entry: "main",
            bindings: &[Binding::Read, Binding::Write, Binding::Uniform],
            parameters: 0,
            group: shader.group,
        })?;
        Ok(ShaderKernel {
            program,
            block: card.allocate(size_of::<[u32; 4]>(), Access::Uniform)?,
            input_bytes: shader.input_bytes,
            output_bytes: shader.output_bytes,
            units: 0,
        })
    }
}

impl<C: Card> Kernel<C> for ShaderKernel<C> {
    fn compute(
        &mut self,
        card: &C,
        commands: &mut C::Commands,
        input: &C::Buffer,
        bytes: usize,
        output: &C::Buffer,
    ) -> Result<usize, Error> {
        let units = bytes / self.input_bytes;
        // As a structure of a u32 and a vec2<u32> lies in memory.
        let block = [units as u32, 0, self.units as u32, (self.units >> 32) as u32];
        card.write(&self.block, bytemuck::cast_slice(&block))?;
        card.launch(commands, &self.program, &[input, output, &self.block], &[], units)?;
        self.units += units as u64;
        Ok(units * self.output_bytes)
    }
}
